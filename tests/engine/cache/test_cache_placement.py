from engine.cache.node import Checkpoint, Node
from engine.cache.placement import snapshots
from engine.cache.radix import Match
from engine.protocol import EditPoint


def points(*pairs):
    return [EditPoint(position, kind) for position, kind in pairs]


def test_cold_prompt_snapshots_every_edit_point():
    wanted = points((10, "head"), (30, "turn"), (48, "prompt"))
    assert snapshots(Match([], 0, None, 0), 50, wanted) == [(10, "head"), (30, "turn"), (48, "prompt")]


def test_what_the_resume_skips_is_left_out():
    wanted = points((10, "head"), (30, "turn"), (48, "prompt"))
    assert snapshots(Match([], 30, None, 30), 50, wanted) == [(48, "prompt")]


def test_without_a_declared_prompt_end_the_token_before_the_last_is_one():
    assert snapshots(Match([], 0, None, 0), 50, []) == [(49, "prompt")]
    assert snapshots(Match([], 49, None, 49), 50, []) == []
    assert snapshots(Match([], 0, None, 0), 1, []) == []


def test_an_undeclared_fork_is_remembered_beside_the_prompt_end():
    forked = Match([], 20, None, 10, forks=True)
    assert snapshots(forked, 50, points((48, "prompt"))) == [(20, "live"), (48, "prompt")]
    assert snapshots(Match([], 20, None, 20, forks=True), 50, points((48, "prompt"))) == [(48, "prompt")]


def test_a_position_gets_its_heaviest_class_once():
    wanted = points((20, "decode"), (20, "head"), (20, "prompt"))
    assert snapshots(Match([], 0, None, 0), 50, wanted) == [(20, "head")]


def test_positions_move_down_to_the_grid():
    wanted = points((63, "head"), (64, "turn"), (130, "turn"), (190, "prompt"))
    assert snapshots(Match([], 0, None, 0), 200, wanted, grid=64) == [(64, "turn"), (128, "turn")]


def test_outside_the_prompt_there_is_nothing_to_snapshot():
    assert snapshots(Match([], 0, None, 0), 50, points((51, "head"), (50, "prompt"), (-3, "turn"))) == [(50, "prompt")]


def test_positions_that_have_a_checkpoint_are_skipped():
    node = Node(None, b"", -1, 0)
    kept = Checkpoint(40, node, 1, "turn", "s", False, 1)
    match = Match([], 45, None, 30, (kept,))
    assert snapshots(match, 50, points((40, "turn"), (45, "prompt"))) == [(45, "prompt")]
