// pi's extension: asks `git daytona hook` before each tool, at a session's start and after a turn.
// It decides nothing. An error in it blocks the tool: that is pi's own rule.

import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const HOOK_MS = 60000
const EVENT_MS = 600000

// The launcher of the installation that this file belongs to: of a checkout or a prefix; else PATH's.
function program() {
  const here = dirname(fileURLToPath(import.meta.url))
  for (const up of ["../../..", "../../../..", "../../../../../.."]) {
    const found = join(here, up, "bin", "git-daytona")
    if (existsSync(found)) return found
  }
  return "git-daytona"
}

function hook(event, context, more, limit) {
  const call = { session_id: context.sessionManager.getSessionId(), cwd: context.cwd, ...more }
  return new Promise((resolve) => {
    const child = spawn(program(), ["hook", event, "--agent", "pi"], { timeout: limit })
    let out = ""
    let err = ""
    child.stdout.on("data", (chunk) => (out += chunk))
    child.stderr.on("data", (chunk) => (err += chunk))
    child.stdin.on("error", () => {})
    child.on("error", (problem) => resolve({ status: null, out, err: String(problem) }))
    child.on("close", (status) => resolve({ status, out, err }))
    child.stdin.end(JSON.stringify(call))
  })
}

export default function (pi) {
  pi.on("tool_call", async (event, context) => {
    const call = { tool_name: event.toolName, tool_input: event.input }
    const { status, out, err } = await hook("pre-tool", context, call, HOOK_MS)
    if (status !== 0) {
      return { block: true, reason: err.trim() || "git-daytona: the hook failed, so the call is denied" }
    }
    Object.assign(event.input, JSON.parse(out).input) // no answer is an error, too
  })
  pi.on("session_start", (_event, context) => hook("session.created", context, {}, EVENT_MS))
  pi.on("agent_end", (_event, context) => hook("session.idle", context, {}, EVENT_MS))
}
