// An OpenCode plugin for launches in which OpenCode itself has folders of the session: commands that it runs get the user's own
// back, so that git, language tools and the like find what they always find.

export const UserFolders = async () => {
  const folders = JSON.parse(process.env.FT_USER_FOLDERS ?? "{}");
  return {
    "shell.env": async (_input, output) => {
      Object.assign(output.env, folders);
    },
  };
};
