// Loads a copy of the plugin as OpenCode does, against a service that falls silent, and prints as
// JSON what becomes of each call.
import { pathToFileURL } from "node:url"

const [plugin, ...names] = process.argv.slice(2)
const toasts = []
setInterval(() => {}, 1000) // OpenCode, too, has other things that keep it running
const client = {
  tui: { showToast: async ({ body }) => { toasts.push(body.message) } },
  tool: { ids: async () => ({ data: [] }) },
  mcp: { status: async () => ({ data: {} }) },
  session: { get: async () => ({ data: {} }) },
}
const ended = async (promise) =>
  promise.then((value) => JSON.stringify(value) ?? "done", (error) => error.message)
const { default: daytona } = await import(pathToFileURL(plugin).href)
const hooks = await daytona.server({ client, project: { id: "p" }, directory: "/", worktree: "/" })
const context = { sessionID: "s", callID: "c", metadata() {}, ask: async () => {} }
const calls = {
  tool: () => hooks.tool.bash?.execute({ command: "true" }, context)
    ?? Promise.reject(new Error("there is no such tool")),
  guard: () => hooks["tool.execute.before"]({ tool: "lsp" }),
  event: () => hooks.event({ event: { type: "session.idle", properties: {} } }),
  dispose: () => hooks.dispose(),
}
const said = {}
for (const name of names) said[name] = await ended(calls[name]())
console.log(JSON.stringify({ said, toasts }))
process.exit(0)
