// OpenCode's plugin: runs each session's tools in a Daytona sandbox. A shim without decisions: it
// starts `git-daytona serve`, passes hooks and tool calls on to it as JSON-RPC, one object a line,
// and shows what comes back. See git-daytona-hooks(7).

import { spawn } from "node:child_process"
import { existsSync, realpathSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const START_MS = 20_000 // for the first answer
const PING_MS = 10_000 // how often the service is asked for a sign of life during calls
const ANSWER_MS = 30_000 // for its answer to that; a call itself may take its time
const SHUTDOWN_MS = 75_000 // the service drains syncs for 60 s, then revokes
const TOAST_MS = 5_000 // how long a toast is shown
const READ_MS = 2_000 // how long before the next one may cover it

// The launcher: named by the environment, else the one of the installation that this file is part
// of, else the one on PATH. Never looked for in a repository: the working directory of the search
// is "/".
function launcher() {
  if (process.env.DAYTONA_SERVICE_BINARY) return process.env.DAYTONA_SERVICE_BINARY
  const here = dirname(realpathSync(fileURLToPath(import.meta.url)))
  if (existsSync(join(here, "..", "__main__.py"))) {
    // a checkout; PREFIX/lib/pythonX.Y/site-packages
    for (const up of ["../../..", "../../../../.."]) {
      const found = join(here, up, "bin", "git-daytona")
      if (existsSync(found)) return found
    }
  }
  return "git-daytona"
}

// One process of the service and the conversation with it.
class Service {
  constructor(handlers) {
    this.handlers = handlers
    this.pending = new Map()
    this.last = 0
    this.complaint = ""
    this.ended = new Promise((resolve) => { this.end = resolve })
    // A session of its own: Ctrl-C in the terminal is for OpenCode, and the end of input tells the
    // service.
    const stdio = ["pipe", "pipe", "pipe"]
    this.child = spawn(launcher(), ["serve"], { cwd: "/", detached: true, stdio })
    this.child.on("error", (error) => this.died(`cannot run '${launcher()}': ${error.message}`))
    this.child.on("exit", (code, signal) => {
      const ended = `it ended (${signal ?? `status ${code}`})`
      setTimeout(() => this.died(this.complaint.trim() || ended), 50)
    })
    this.child.stdin.on("error", () => {})
    this.child.stdout.setEncoding("utf8")
    let rest = ""
    this.child.stdout.on("data", (chunk) => {
      const lines = (rest + chunk).split("\n")
      rest = lines.pop()
      for (const line of lines) this.receive(line)
    })
    this.child.stderr.setEncoding("utf8")
    this.child.stderr.on("data", (chunk) => {
      this.complaint = (this.complaint + chunk).slice(-2000)
    })
    this.child.unref()
    for (const stream of this.child.stdio) stream.unref?.()
  }

  died(reason) {
    if (this.dead) return
    this.dead = reason.replaceAll("\n", "; ")
    for (const { reject } of this.pending.values()) reject(this.gone())
    this.pending.clear()
    this.end()
  }

  gone() {
    return new Error(`the Daytona service is gone: ${this.dead}`)
  }

  send(message) {
    this.child.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n")
  }

  notify(method, params) {
    if (!this.dead) this.send({ method, params })
  }

  // Resolves to the result; rejects with the service's words.
  call(method, params, onId) {
    if (this.dead) return Promise.reject(this.gone())
    const id = ++this.last
    const answer = new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }))
    onId?.(id)
    this.send({ id, method, params })
    if (method !== "initialize") this.attend()
    return answer
  }

  // A service that is there but stands still (stopped, stuck) must not keep OpenCode waiting.
  // Whatever it says to a ping is an answer.
  attend() {
    if (this.attending) return
    this.attending = setTimeout(async () => {
      if (!this.dead && this.pending.size) {
        const answer = this.call("ping", {}).catch(() => {})
        await within(answer, ANSWER_MS, "").catch(() => this.kill("it does not answer"))
      }
      this.attending = undefined
      if (!this.dead && this.pending.size) this.attend()
    }, PING_MS)
    this.attending.unref?.()
  }

  kill(reason) {
    this.died(reason)
    this.child.kill("SIGKILL")
  }

  async receive(line) {
    let message
    try { message = JSON.parse(line) } catch { return }
    if (message.method === undefined) {
      const waiting = this.pending.get(message.id)
      this.pending.delete(message.id)
      if (!message.error) return waiting?.resolve(message.result)
      const { message: words, data } = message.error
      return waiting?.reject(Object.assign(new Error(words), { kind: data?.kind }))
    }
    try {
      const result = await this.handlers[message.method]?.(message.params, this)
      if (message.id !== undefined) this.send({ id: message.id, result: result ?? null })
    } catch (error) {
      const words = String(error?.message ?? error)
      if (message.id !== undefined) {
        this.send({ id: message.id, error: { code: -32000, message: words } })
      }
    }
  }
}

function within(promise, ms, what) {
  let timer
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(what)), ms) })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

export default async function daytona({ client, project, directory, worktree }) {
  const calls = new Map() // id of a tool call under way: its context
  const toasts = []
  let showing, service, ready, broken, restarted = false, disposing = false

  function show(body) {
    return client.tui.showToast({ body: { ...body, duration: TOAST_MS } }).catch(() => {})
  }
  async function showAll() {
    for (let next; (next = toasts.shift()); ) {
      await show(next)
      if (disposing) continue
      await new Promise((resolve) => {
        wake = resolve
        setTimeout(resolve, READ_MS).unref?.()
      })
    }
    showing = undefined
  }
  let wake = () => {}
  function toast(body) {
    toasts.push(body)
    showing ??= showAll()
  }

  const handlers = {
    toast: ({ title, message, variant }) => toast({ title, message, variant }),
    progress: ({ call, title, metadata }, from) => {
      const entry = calls.get(call)
      if (entry?.service === from) entry.context.metadata({ ...(title ? { title } : {}), metadata })
    },
    ask: async ({ call, permission, patterns, always, metadata }, from) => {
      const entry = calls.get(call)
      if (entry?.service !== from) throw new Error("that call has ended")
      try {
        await entry.context.ask({ permission, patterns, always, metadata })
      } catch (error) {
        entry.denied = error // OpenCode recognizes its own error, and ends the turn where it should
        throw error
      }
    },
    parent: async ({ sessionID }) => {
      const { data } = await client.session.get({ path: { id: sessionID } })
      return { parentID: data?.parentID ?? null }
    },
  }

  function start() {
    const mine = (service = new Service(handlers))
    const answer = mine.call("initialize", { directory, worktree, projectID: project?.id })
    ready = within(answer, START_MS, "it does not answer")
    ready.catch((error) => { broken = error.message; mine.kill(error.message) })
    mine.ended.then(() => {
      if (disposing || broken) return
      if (restarted) {
        broken = `the Daytona service ended twice: ${mine.dead}`
        const message = `${broken}; restart OpenCode`
        return toast({ title: "Daytona service ended", message, variant: "error" })
      }
      restarted = true
      toast({ title: "Daytona service restarted", message: mine.dead, variant: "warning" })
      start()
    })
    return ready
  }

  function refusal() {
    const why = "Daytona is not available, and nothing runs on this machine instead"
    return new Error(`${why}: ${broken}`)
  }

  async function run(name, args, context) {
    await ready.catch(() => {})
    if (broken) throw refusal()
    let id, abort
    const from = service
    const { sessionID, callID } = context
    const answer = from.call("tool", { name, sessionID, callID, arguments: args }, (given) => {
      id = given
      calls.set(id, { context, service: from })
    })
    if (context.abort) {
      abort = () => from.notify("cancel", { id })
      if (context.abort.aborted) abort()
      context.abort.addEventListener("abort", abort, { once: true })
    }
    try {
      return await answer
    } catch (error) {
      const denied = calls.get(id)?.denied
      throw error.kind === "Denied" && denied ? denied : error
    } finally {
      calls.delete(id)
      context.abort?.removeEventListener("abort", abort)
    }
  }

  let known = { tools: [], allowed: [], events: [], system: "" }
  try {
    known = await start()
  } catch {
    const message = `${broken}; tools are blocked`
    toast({ title: "Daytona is not available", message, variant: "error" })
  }
  const tools = new Map(known.tools.map((tool) => [tool.name, tool]))
  const allowed = new Set(known.allowed)

  return {
    tool: Object.fromEntries(known.tools.map((tool) => [tool.name, {
      description: tool.description,
      args: tool.parameters.properties ?? {},
      execute: (args, context) => run(tool.name, args, context),
    }])),
    // OpenCode lists every argument as required; the model is to see which ones are.
    "tool.definition": async ({ toolID }, output) => {
      if (tools.has(toolID) && output.jsonSchema) output.jsonSchema = tools.get(toolID).parameters
    },
    "tool.execute.before": async ({ tool }) => {
      if (broken) throw refusal()
      if (allowed.has(tool)) return
      const builtin = await client.tool.ids().then(({ data }) => data ?? [], () => [])
      const status = await client.mcp.status().then(({ data }) => data ?? {}, () => ({}))
      const servers = Object.keys(status)
      await ready
      const { refusal: words } = await service.call("guard", { tool, builtin, servers })
      if (words) throw new Error(words)
    },
    event: async ({ event }) => {
      const { type, properties } = event
      if (known.events.includes(type)) service.notify("event", { type, properties })
    },
    "experimental.chat.system.transform": async (_input, output) => {
      if (known.system) output.system.push(known.system)
    },
    dispose: async () => {
      disposing = true
      wake()
      // One that is still at it then is stuck; what it leaves is made good by the next start.
      const late = "it does not end"
      if (!service.dead) {
        await within(service.call("shutdown", {}), SHUTDOWN_MS, late).catch((error) => {
          if (error.message === late) service.kill(late)
        })
      }
      service.child.stdin.end()
      await within(Promise.resolve(showing), 1_000, "").catch(() => {})
    },
  }
}
