// How many experts a step would miss with any number of slots (Mattson et al., "Evaluation techniques for storage
// hierarchies", 1970). A key is one expert of one layer; its stack distance is how many keys would stay in slots rather than it.
//
// Both policies are stack algorithms, because what a key is worth does not depend on how many slots there are. Recency: worth is
// the time of last use, distances are exact. Frequency: uses per row, halved with age; the distance is the rank by worth, which
// differs from what lies in slots only in what has just come in.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace ft {

// Counts of keys along an axis of positions, and how many lie above one: a Fenwick tree.
class Axis {
 public:
  explicit Axis(int64_t size) : tree_(size + 1), at_(size) {}
  int64_t size() const { return (int64_t)at_.size(); }
  int64_t at(int64_t position) const { return at_[position]; }

  void add(int64_t position, int32_t n) {
    at_[position] += n;
    total_ += n;
    for (int64_t i = position + 1; i < (int64_t)tree_.size(); i += i & -i) tree_[i] += n;
  }

  int64_t above(int64_t position) const {
    int64_t up_to = 0;
    for (int64_t i = position + 1; i > 0; i -= i & -i) up_to += tree_[i];
    return total_ - up_to;
  }

  void clear() {
    std::fill(tree_.begin(), tree_.end(), 0);
    std::fill(at_.begin(), at_.end(), 0);
    total_ = 0;
  }

 private:
  std::vector<int32_t> tree_, at_;
  int64_t total_ = 0;
};

class Curve {
 public:
  // `half_life_rows` 0: recency. `counted_rows`: steps of more rows change the order and are not counted.
  Curve(int64_t layers, int64_t experts, double half_life_rows, double half_life_steps, int64_t counted_rows)
      : layers_(layers),
        experts_(experts),
        half_life_rows_(half_life_rows),
        growth_(std::exp2(1 / half_life_steps)),
        counted_rows_(counted_rows),
        axis_(half_life_rows > 0 ? kUnits * kPerUnit : std::max<int64_t>(kLeastStamps, 4 * layers * experts)),
        place_(layers * experts, kNever),
        worth_(half_life_rows > 0 ? layers * experts : 0, kNothing),
        sums_(experts),
        distances_(layers * experts + 1),
        missing_(layers * experts + 1) {}

  template <class T>
  void note(int64_t layer, const T* ids, int64_t rows, int64_t top_k) {
    if (layer < 0 || layer >= layers_) throw std::out_of_range("no such layer");
    for (int64_t i = 0; i < rows * top_k; ++i)
      if (ids[i] < 0 || (int64_t)ids[i] >= experts_) throw std::out_of_range("no such expert");
    bool counted = rows <= counted_rows_;
    if (layer <= layer_) row_ += rows_, counted_step_ = false;  // layers ascend within a step
    if (counted && !counted_step_) begin_step();
    layer_ = layer, rows_ = rows;
    gather(ids, rows, top_k);
    if (counted)
      for (int64_t expert : touched_) count(layer * experts_ + expert);
    for (int64_t expert : touched_) use(layer * experts_ + expert, rows, sums_[expert]);
    for (int64_t expert : touched_) sums_[expert] = 0;
  }

  // Keys of one step that are not in one of `slots` slots, lately.
  double misses(int64_t slots) {
    if (steps_weight_ == 0) return 0;
    if (stale_) {
      missing_.back() = distances_.back();
      for (int64_t i = (int64_t)missing_.size() - 2; i >= 0; --i) missing_[i] = missing_[i + 1] + distances_[i];
      stale_ = false;
    }
    double room = (double)slots;
    if (half_life_rows_ > 0)
      for (int i = 0; i < 2; ++i) room = slots - kNewcomers * beyond(room) / (double)layers_;
    return beyond(room);
  }

  // Keys that one step asks for, lately.
  double asked() const { return steps_weight_ == 0 ? 0 : asked_ / steps_weight_; }
  int64_t steps() const { return steps_; }

 private:
  static constexpr int64_t kNever = -1, kUnits = 256, kPerUnit = 64, kLeastStamps = 1 << 12;
  static constexpr double kNothing = -std::numeric_limits<double>::infinity();
  static constexpr double kHeaviest = 1e200;
  // What an access has just brought in lies in slots whatever it is worth, until later ones push it out: so many accesses' misses
  // take room from what is worth more. With this many, recorded routing of 6 and of 30 layers is met within one per cent.
  static constexpr double kNewcomers = 1.5;

  // Keys of one step at a distance of `slots` or more.
  double beyond(double slots) const {
    double most = (double)missing_.size() - 1, at = std::clamp(slots, 0.0, most);
    int64_t low = (int64_t)at, high = std::min(low + 1, (int64_t)most);
    return (missing_[low] + (at - (double)low) * (missing_[high] - missing_[low])) / steps_weight_;
  }

  void begin_step() {
    counted_step_ = true;
    ++steps_;
    weight_ *= growth_;
    if (weight_ > kHeaviest) {  // the same proportions in smaller numbers
      for (double& d : distances_) d /= weight_;
      steps_weight_ /= weight_, asked_ /= weight_, weight_ = 1;
    }
    steps_weight_ += weight_;
  }

  // The distinct experts in the order in which they count as used, each with the sum of 2^(-age in half-lives) over its rows: the last row is the youngest.
  template <class T>
  void gather(const T* ids, int64_t rows, int64_t top_k) {
    touched_.clear();
    for (int64_t r = 0; r < rows; ++r) {
      double use = half_life_rows_ > 0 && rows > 1 ? std::exp2((double)(r + 1 - rows) / half_life_rows_) : 1;
      for (int64_t k = 0; k < top_k; ++k) {
        int64_t expert = ids[r * top_k + k];
        if (sums_[expert] == 0) touched_.push_back(expert);
        sums_[expert] += use;
      }
    }
    if (half_life_rows_ <= 0) std::sort(touched_.begin(), touched_.end());  // the router's order would decide among equals
  }

  void count(int64_t key) {
    int64_t place = place_[key];
    // within one place of the axis the order is not known: half of the others
    int64_t distance = place == kNever ? (int64_t)distances_.size() - 1 : axis_.above(place) + (axis_.at(place) - 1) / 2;
    distances_[distance] += weight_;
    asked_ += weight_;
    stale_ = true;
  }

  void use(int64_t key, int64_t rows, double sum) {
    int64_t place;
    if (half_life_rows_ > 0) {
      double now = (double)(row_ + rows - 1) / half_life_rows_ + (rows > 1 ? std::log2(sum) : 0), before = worth_[key];
      double high = std::max(before, now), low = std::min(before, now);
      worth_[key] = low == kNothing ? high : high + std::log2(1 + std::exp2(low - high));
      if (place_of(worth_[key]) >= axis_.size()) lower();
      place = place_of(worth_[key]);
    } else {
      if (stamp_ == axis_.size()) compact();
      place = stamp_++;
    }
    if (place == place_[key]) return;
    if (place_[key] != kNever) axis_.add(place_[key], -1);
    axis_.add(place, 1);
    place_[key] = place;
  }

  int64_t place_of(double worth) const { return std::max<int64_t>(0, (int64_t)((worth - base_) * kPerUnit)); }

  // Worth only grows: move the axis up. What falls off its lower end was not used for thousands of rows.
  void lower() {
    base_ += kUnits / 2.0;
    axis_.clear();
    for (size_t key = 0; key < place_.size(); ++key)
      if (place_[key] != kNever) axis_.add(place_[key] = place_of(worth_[key]), 1);
  }

  // Stamps are used up: number the keys anew, in their order.
  void compact() {
    std::vector<int64_t> keys;
    for (size_t key = 0; key < place_.size(); ++key)
      if (place_[key] != kNever) keys.push_back((int64_t)key);
    std::sort(keys.begin(), keys.end(), [&](int64_t a, int64_t b) { return place_[a] < place_[b]; });
    axis_.clear();
    stamp_ = 0;
    for (int64_t key : keys) axis_.add(place_[key] = stamp_++, 1);
  }

  int64_t layers_, experts_;
  double half_life_rows_, growth_;
  int64_t counted_rows_;
  Axis axis_;
  std::vector<int64_t> place_;                  // of each key on the axis
  std::vector<double> worth_;                   // log2 of uses per row, as the slot table's policy has it
  std::vector<double> sums_;                    // of the experts in this call
  std::vector<int64_t> touched_;                // the experts in this call
  std::vector<double> distances_;               // weight of the accesses at each distance; the last: never used before
  std::vector<double> missing_;                 // running sums of it from the end
  double weight_ = 1, steps_weight_ = 0, asked_ = 0, base_ = -1;
  int64_t layer_ = -1, rows_ = 0, row_ = 0, stamp_ = 0, steps_ = 0;
  bool counted_step_ = false, stale_ = true;
};

}  // namespace ft
