// pi's extension: asks `git daytona hook` before each tool, at a session's start and after a turn.
// It decides nothing. An error in it blocks the tool: that is pi's own rule.

import { execFile } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"

const HOOK_MS = 60000
const EVENT_MS = 600000

// The launcher of the installation that this file belongs to: of a checkout or a prefix; else PATH's.
function program() {
  const above = (up) => new URL("../".repeat(up) + "bin/git-daytona", import.meta.url)
  return [3, 4, 6].map((up) => fileURLToPath(above(up))).find(existsSync) ?? "git-daytona"
}

function hook(event, context, more, limit) {
  const call = { session_id: context.sessionManager.getSessionId(), cwd: context.cwd, ...more }
  return new Promise((resolve) => {
    const how = { timeout: limit, maxBuffer: Infinity }
    const child = execFile(program(), ["hook", event, "--agent", "pi"], how, (problem, out, err) =>
      resolve({ problem, out, err: typeof problem?.code === "string" ? String(problem) : err }),
    )
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(call))
  })
}

export default function (pi) {
  pi.on("tool_call", async (event, context) => {
    const call = { tool_name: event.toolName, tool_input: event.input }
    const { problem, out, err } = await hook("pre-tool", context, call, HOOK_MS)
    if (problem) {
      return { block: true, reason: err.trim() || "git-daytona: the hook failed, so the call is denied" }
    }
    Object.assign(event.input, JSON.parse(out).input) // no answer is an error, too
  })
  pi.on("session_start", (_event, context) => hook("session.created", context, {}, EVENT_MS))
  pi.on("agent_end", (_event, context) => hook("session.idle", context, {}, EVENT_MS))
}
