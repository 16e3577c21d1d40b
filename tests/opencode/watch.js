// A second plugin, of the tests: writes down what OpenCode shows and what happens to its sessions.
import { appendFileSync } from "node:fs"

export default async () => ({
  event: async ({ event }) => {
    if (/^(tui\.toast|session\.(created|idle|deleted|error)|permission)/.test(event.type))
      appendFileSync(process.env.WATCHED, JSON.stringify(event) + "\n")
  },
})
