// OpenCode's plugin, for OpenCode 1 (`server`) and 2 (`setup`): runs each session's tools in a
// Daytona sandbox. A shim without decisions: it starts `git-daytona serve`, passes hooks and tool
// calls on to it as JSON-RPC, one object a line, and shows what comes back. What OpenCode 2 names
// otherwise is translated here, and only here. See git-daytona-hooks(7).

import { spawn } from "node:child_process"
import { existsSync, realpathSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const START_MS = 20_000 // for the first answer
const PING_MS = 10_000 // how often the service is asked for a sign of life during calls
const ANSWER_MS = 30_000 // for its answer to that; a call itself may take its time
const SHUTDOWN_MS = 75_000 // the service drains syncs for 60 s, then revokes
const CLEANUP_MS = 2_500 // OpenCode 2 kills itself after 3 s; the service goes on without it
const TOAST_MS = 5_000 // how long a toast is shown
const READ_MS = 2_000 // how long before the next one may cover it
const SHOW_MS = 1_000 // for the last look at a command to be shown

// The launcher: named by the environment, else the one of the installation that this file is part
// of, else the one on PATH. Never looked for in a repository: the working directory of the search
// is "/".
function launcher() {
  if (process.env.DAYTONA_SERVICE_BINARY) return process.env.DAYTONA_SERVICE_BINARY
  const here = dirname(realpathSync(fileURLToPath(import.meta.url)))
  if (existsSync(join(here, "..", "..", "__main__.py"))) {
    // a checkout; PREFIX/lib/pythonX.Y/site-packages
    for (const up of ["../../../..", "../../../../../.."]) {
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

// The service for one workspace, started again once if it ends. `client` shows a toast, answers
// `parent` and `fork` (from which sessions a session may have been forked, the likeliest first), and
// knows how a tool call under way asks its user and shows its progress.
class Daytona {
  constructor(client, params) {
    this.client = client
    this.params = params
    this.calls = new Map() // id of a tool call under way: its context and its service
    this.known = { tools: [], allowed: [], hostTools: [], events: [], system: "" }
  }

  // Resolves when the service has answered, or cannot: then `broken` says why.
  async start() {
    const service = (this.service = new Service({
      toast: (toast) => this.client.toast(toast),
      parent: async ({ sessionID }) => ({ parentID: await this.client.parent(sessionID) }),
      fork: async ({ sessionID }) => ({ sessionIDs: await this.client.fork(sessionID) }),
      progress: ({ call, ...shown }, from) => this.under(call, from)?.progress(shown),
      ask: async ({ call, ...question }, from) => {
        const context = this.under(call, from)
        if (!context) throw new Error("that call has ended")
        try {
          return await context.ask(question)
        } catch (error) {
          context.denied = error // OpenCode recognizes its own error, and ends the turn by it
          throw error
        }
      },
    }))
    this.ready = within(service.call("initialize", this.params), START_MS, "it does not answer")
    service.ended.then(() => this.ended(service))
    try {
      this.known = await this.ready
      if (this.charged) this.charge(this.charged)
    } catch (error) {
      this.broken ??= error.message
      service.kill(this.broken)
    }
  }

  // These tools, in the host's names, are in the place of its own.
  charge(tools) {
    this.charged = tools
    this.service.notify("charge", { tools })
  }

  ended(service) {
    if (this.disposing || this.broken || service !== this.service) return
    if (this.restarted) {
      this.broken = `the Daytona service ended twice: ${service.dead}`
      const message = `${this.broken}; restart OpenCode`
      this.client.toast({ title: "Daytona service ended", message, variant: "error" })
      return
    }
    this.restarted = true
    const title = "Daytona service restarted"
    this.client.toast({ title, message: service.dead, variant: "warning" })
    this.start()
  }

  under(call, from) {
    const entry = this.calls.get(call)
    return entry?.from === from ? entry.context : undefined
  }

  refusal(why = this.broken) {
    return new Error(`Daytona is not available, and nothing runs on this machine instead: ${why}`)
  }

  // Runs a tool; `context` has sessionID, the signal of an abort, progress() and ask().
  async run(name, args, context) {
    await this.ready.catch(() => {})
    if (this.broken) throw this.refusal()
    const from = this.service
    const { sessionID, rules, signal } = context
    let id
    const answer = from.call("tool", { name, sessionID, arguments: args, rules }, (given) => {
      id = given
      this.calls.set(id, { context, from })
    })
    const abort = () => from.notify("cancel", { id })
    if (signal?.aborted) abort()
    signal?.addEventListener("abort", abort, { once: true })
    try {
      return await answer
    } catch (error) {
      throw error.kind === "Denied" && context.denied ? context.denied : error
    } finally {
      this.calls.delete(id)
      signal?.removeEventListener("abort", abort)
    }
  }

  // Throws for a tool of OpenCode's own that would act on this machine.
  async guard(tool, builtin, servers) {
    await this.ready.catch(() => {})
    if (this.broken) throw this.refusal()
    const { refusal } = await this.service.call("guard", { tool, builtin, servers })
    if (refusal) throw new Error(refusal)
  }

  event(type, properties) {
    if (this.known.events.includes(type)) this.service.notify("event", { type, properties })
  }

  async dispose() {
    this.disposing = true
    const { service } = this
    // One that is still at it then is stuck; what it leaves is made good by the next start.
    const late = "it does not end"
    let said = []
    if (!service.dead) {
      await within(service.call("shutdown", {}), SHUTDOWN_MS, late).then(
        (answer) => { said = answer.said ?? [] },
        (error) => { if (error.message === late) service.kill(late) },
      )
    }
    this.leave()
    return said
  }

  // The end of input tells the service to bring back what is not here yet, and to end.
  leave() {
    this.service.child.stdin.end()
  }
}

// Toasts one after the other, each long enough to be read.
function toaster(client) {
  const waiting = []
  let showing, wake = () => {}, disposing = false
  async function showAll() {
    for (let next; (next = waiting.shift()); ) {
      await client.tui.showToast({ body: { ...next, duration: TOAST_MS } }).catch(() => {})
      if (disposing) continue
      await new Promise((resolve) => {
        wake = resolve
        setTimeout(resolve, READ_MS).unref?.()
      })
    }
    showing = undefined
  }
  function toast({ title, message, variant }) {
    waiting.push({ title, message, variant })
    showing ??= showAll()
  }
  async function dispose() {
    disposing = true
    wake()
    await within(Promise.resolve(showing), 1_000, "").catch(() => {})
  }
  return { toast, dispose }
}

// Shows what a tool has done so far in OpenCode 1. There context.metadata() gives a plugin's tool an
// Effect that nothing runs (as of 1.18), and the part is changed by the API instead.
async function display(client, { sessionID, messageID, callID, abort, metadata: show }, { title, metadata }) {
  const news = { ...(title && { title }), metadata }
  const made = show(news)
  if (typeof made?.pipe !== "function") return made
  const { data } = await client.session.message({ path: { id: sessionID, messageID } })
  const part = data?.parts.find((each) => each.callID === callID)
  if (part?.state.status !== "running" || abort.aborted) return
  await client.session._client.patch({
    url: "/session/{sessionID}/message/{messageID}/part/{partID}",
    path: { sessionID, messageID, partID: part.id },
    body: { ...part, state: { ...part.state, ...news } },
    headers: { "Content-Type": "application/json" },
  })
}

const replaced = (tool) => `'${tool}' is not ours`

// -- OpenCode 1 ---------------------------------------------------------------------------------

async function server({ client, project, directory, worktree }) {
  const toasts = toaster(client)
  const parent = (id) =>
    client.session.get({ path: { id } }).then(({ data }) => data?.parentID ?? null)
  // Nothing names a fork but its messages, which are copies: of our tools, and of sub-agents.
  const fork = async (id) => {
    const { data } = await client.session.messages({ path: { id } })
    const all = (data ?? []).flatMap(({ parts }) => parts.map(({ state }) => state?.metadata))
    const ids = all.map((metadata) => metadata?.daytona ?? metadata?.sessionId)
    return [...new Set(ids.reverse())].filter((each) => each && each !== id)
  }
  const me = { name: "opencode", version: "1", pid: process.pid }
  const params = { client: me, directory, worktree }
  const daytona = new Daytona({ toast: toasts.toast, parent, fork }, { ...params, projectID: project?.id })
  await daytona.start()
  if (daytona.broken) {
    const message = `${daytona.broken}; tools are blocked`
    toasts.toast({ title: "Daytona is not available", message, variant: "error" })
  }
  const tools = new Map(daytona.known.tools.map((tool) => [tool.name, tool]))
  const allowed = new Set(daytona.known.allowed)
  const foreign = new Set() // what another plugin has put in the place of ours

  const execute = (name) => async (args, context) => {
    let shown = Promise.resolve()
    try {
      return await daytona.run(name, args, {
        sessionID: context.sessionID,
        signal: context.abort,
        progress: (news) => (shown = shown.then(() => display(client, context, news)).catch(() => {})),
        ask: (question) => context.ask(question),
      })
    } finally {
      // nothing of it may come after the result
      await within(shown, SHOW_MS, "").catch(() => {})
    }
  }
  return {
    // The configuration forbids the tools that act on this machine (git daytona install); with the
    // plugin in charge these are ours, and the user's own rules are what counts.
    config: async (config) => {
      if (daytona.broken) return
      lift(config)
      daytona.charge([...tools.keys()])
    },
    tool: Object.fromEntries(daytona.known.tools.map((tool) => [tool.name, {
      description: tool.description,
      args: tool.parameters.properties ?? {},
      execute: execute(tool.name),
    }])),
    // OpenCode lists every argument as required; the model is to see which ones are.
    "tool.definition": async ({ toolID }, output) => {
      const ours = tools.get(toolID)
      if (!ours) return
      // It comes for every tool of a name, and the last one is the one that is called.
      foreign.add(toolID)
      if (output.description !== ours.description) return
      foreign.delete(toolID)
      if (output.jsonSchema) output.jsonSchema = ours.parameters
    },
    "tool.execute.before": async ({ tool }) => {
      if (daytona.broken) throw daytona.refusal()
      // Another session's list of tools may be in the making.
      if (foreign.has(tool)) await new Promise((resolve) => setTimeout(resolve, 100))
      if (foreign.has(tool)) throw daytona.refusal(replaced(tool))
      if (allowed.has(tool)) return
      const builtin = await client.tool.ids().then(({ data }) => data ?? [], () => [])
      const status = await client.mcp.status().then(({ data }) => data ?? {}, () => ({}))
      await daytona.guard(tool, builtin, Object.keys(status))
    },
    // Its first line stands for the session's title until there is one.
    "chat.message": async ({ sessionID }, { parts }) => {
      const prompt = parts.find(({ type, synthetic }) => type === "text" && !synthetic)?.text
      const info = { id: sessionID, prompt: prompt?.slice(0, 1000) }
      if (prompt) await daytona.event("session.prompted", { info })
    },
    event: async ({ event }) => daytona.event(event.type, event.properties),
    "experimental.chat.system.transform": async (_input, output) => {
      if (daytona.known.system) output.system.push(daytona.known.system)
    },
    dispose: async () => {
      const said = await daytona.dispose()
      // 'opencode run' shows no toasts, and no display that this would disturb.
      if (process.argv[2] === "run") for (const line of said) process.stderr.write(`${line}\n`)
      await toasts.dispose()
    },
  }
}

const CLOSED = "**" // the resource of the rules that only a plugin in charge lifts

function lift(config) {
  for (const [name, rule] of Object.entries(config.permission ?? {})) {
    if (rule?.[CLOSED] !== "deny") continue
    delete rule[CLOSED]
    if (Object.keys(rule).length === 0) delete config.permission[name]
  }
}

// -- OpenCode 2 ---------------------------------------------------------------------------------

const NAMES = { bash: "shell", apply_patch: "patch", filePath: "path" } // ours: OpenCode 2's
const OURS = Object.fromEntries(Object.entries(NAMES).map(([ours, theirs]) => [theirs, ours]))
const PATCHED = { add: "added", delete: "deleted" } // else: modified

// A text for the model, a schema or arguments, in OpenCode 2's names, or back in ours.
const worded = (text) => text.replace(/\b(bash|apply_patch|filePath)\b/g, (word) => NAMES[word])
const renamed = (object, names) =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [names[name] ?? name, value]))

function definition(tool) {
  const { properties, required, ...schema } = tool.parameters
  return {
    name: NAMES[tool.name] ?? tool.name,
    description: worded(tool.description),
    input: {
      ...schema,
      properties: renamed(properties, NAMES),
      required: required.map((name) => NAMES[name] ?? name),
    },
    options: { codemode: false },
  }
}

function answered({ title, output, place, metadata, attachments }) {
  const { files, filediff } = metadata
  const one = filediff && [{ ...filediff, relativePath: title }]
  const changes = (files ?? one)?.map(({ relativePath, patch, type, additions, deletions }) => ({
    file: relativePath,
    status: PATCHED[type] ?? "modified",
    ...{ patch, additions, deletions },
  }))
  const text = place ? `${place}\n\n${output}` : output // the user reads it here, too
  const images = attachments.map(({ url, mime }) => ({ type: "file", uri: url, mime }))
  return {
    content: [{ type: "text", text }, ...images],
    metadata: { ...metadata, ...(changes && { files: changes }) },
  }
}

// OpenCode 2's events as OpenCode 1 has them; undefined for one that says nothing to us.
const EVENTS = {
  "session.created": ({ sessionID, parentID, title }) =>
    ["session.created", { info: { id: sessionID, parentID, title } }],
  "session.renamed": ({ sessionID, title }) =>
    ["session.updated", { info: { id: sessionID, title } }],
  "session.execution.started": ({ sessionID }) =>
    ["session.status", { sessionID, status: { type: "busy" } }],
  "session.execution.succeeded": ({ sessionID }) => ["session.idle", { sessionID }],
  "session.execution.failed": ({ sessionID }) => ["session.idle", { sessionID }],
  "session.execution.interrupted": ({ sessionID }) => ["session.idle", { sessionID }],
  "session.deleted": ({ sessionID }) => ["session.deleted", { sessionID }],
}

async function setup(ctx) {
  // OpenCode 1.18.33 calls this, too, after `server`, with a context that has no tools.
  if (!ctx.tool?.transform || !ctx.location || !ctx.session?.hook) return
  const { directory, project } = ctx.location
  const mine = new Map() // session: whether it is of this Location; events come of all of them
  const get = (sessionID) => ctx.session.get({ sessionID })

  // There are no toasts: the agent is asked to pass on what went wrong.
  const notes = []
  const toast = ({ title, message, variant }) => {
    if (["error", "warning"].includes(variant)) notes.push(`${title}: ${message}`)
  }
  const parent = (sessionID) => get(sessionID).then(({ parentID }) => parentID ?? null)
  const fork = (sessionID) => get(sessionID).then(({ fork }) => (fork ? [fork.sessionID] : []))
  const daytona = new Daytona({ toast, parent, fork }, {
    client: {
      ...{ name: "opencode", version: ctx.app?.version ?? "2", pid: process.pid },
      background: process.argv.includes("--service"), // with the environment of another shell
    },
    directory,
    worktree: project.directory,
    projectID: project.id,
  })
  const events = new AbortController()

  let tools = new Map() // OpenCode 2's name: ours
  let allowed = new Set()
  const mayRun = (tool) => daytona.known.hostTools === true || allowed.has(tool)
  let question
  const rules = (agentID) =>
    ctx.agent.get({ agentID }).then(({ data }) =>
      data.permissions
        .filter(({ resource, effect }) => !(resource === CLOSED && effect === "deny"))
        .map((rule) => ({ ...rule, action: OURS[rule.action] ?? rule.action })))
  const execute = (name) => async (args, context) => {
    const { sessionID, agent, signal } = context
    return answered(await daytona.run(name, renamed(args, OURS), {
      ...{ sessionID, signal, rules: await rules(agent) },
      progress: ({ title, metadata }) => context.progress({ ...(title && { title }), ...metadata }),
      ask: ({ text, options }) => answerOf(question, text, options, context),
    }))
  }

  const servers = new Set() // the user's MCP servers, which connect while OpenCode goes on
  async function mcp() {
    const before = servers.size
    const { data } = await ctx.mcp.list().catch(() => ({ data: [] })) // then they are refused
    for (const { name } of data) servers.add(name)
    if (servers.size > before) await ctx.tool.reload() // their tools are offered from then on
    return [...servers]
  }
  // Another plugin, or a newer OpenCode, may have put its own tool in the place of ours.
  const isOurs = (tool) => tools.has(tool?.id) && tool.description === tools.get(tool.id).description
  const reason = async () => {
    if (daytona.broken) return daytona.broken
    const listed = new Map((await ctx.tool.list()).map((tool) => [tool.id, tool]))
    const other = [...tools.keys()].find((name) => !isOurs(listed.get(name)))
    return other && replaced(other)
  }
  const check = async () => {
    const why = await reason()
    if (why) throw daytona.refusal(why)
  }

  try {
    // First what refuses, so that nothing is open while the rest comes.
    await ctx.session.hook("context", async (turn) => {
      await check()
      await mcp()
      // The user's own rules may offer it.
      if (!mayRun("execute")) delete turn.tools?.execute
      turn.system.push({ type: "text", text: worded(daytona.known.system) })
      const told = notes.splice(0).join("\n")
      if (told) turn.system.push({ type: "text", text: `Tell the user, from Daytona:\n${told}` })
    })
    await ctx.tool.hook("execute.before", async ({ tool }) => {
      await check()
      if (tools.has(tool) || allowed.has(tool)) return
      const listed = await ctx.tool.list()
      const names = await mcp()
      const builtin = listed.filter(({ options }) => !servers.has(options?.namespace))
      await daytona.guard(tool, builtin.map(({ id }) => id), names)
    })
    await daytona.start()
    const { known } = daytona
    tools = new Map(known.tools.map((tool) => [NAMES[tool.name] ?? tool.name, {
      ...definition(tool),
      execute: execute(tool.name),
    }]))
    allowed = new Set([...known.allowed, ...(known.hostTools === true ? [] : known.hostTools)])
    // Replayed on every change: it must be pure, and must not throw.
    await ctx.tool.transform((registry) => {
      question = registry.get("question")
      for (const { id, options } of registry.list()) {
        if (servers.has(options?.namespace)) {
          registry.update(id, (tool) => { tool.options = { ...tool.options, codemode: false } })
        } else if (!mayRun(id)) {
          registry.remove(id)
        }
      }
      for (const tool of tools.values()) registry.add(tool)
    })
    // Code Mode's fetch() reaches this machine, and no hook sees it.
    await ctx.agent.transform((registry) => {
      const deny = { action: "execute", resource: "*", effect: "deny" }
      for (const { id } of registry.list()) {
        registry.update(id, (agent) => { agent.permissions.push(deny) })
      }
    })
    listen().catch(({ message }) => {
      toast({ title: "OpenCode's events ended", message, variant: "error" })
    })
    daytona.broken ??= await reason()
    if (!daytona.broken) daytona.charge([...tools.keys()])
  } catch (error) {
    // A setup that throws would leave OpenCode with its own tools; so would one without hooks.
    daytona.broken ??= String(error?.message ?? error)
    const none = (registry) => registry.list().forEach(({ id }) => registry.remove(id))
    await Promise.resolve().then(() => ctx.tool.transform(none)).catch(() => {})
  }

  async function listen() {
    for await (const { type, data, location } of ctx.event.subscribe({ signal: events.signal })) {
      const event = EVENTS[type]?.(data)
      if (!event) continue
      const id = data.sessionID
      const place = data.location ?? location
      if (place) mine.set(id, place.directory === directory)
      else if (!mine.has(id) && type !== "session.deleted") {
        const session = await get(id).catch(() => undefined)
        mine.set(id, session?.location?.directory === directory)
      }
      // A deleted one can be asked nothing any more: the service knows whether it has it.
      if (mine.get(id) ?? true) daytona.event(...event)
      if (type === "session.deleted") mine.delete(id)
    }
  }

  return async () => {
    events.abort()
    await within(daytona.dispose(), CLEANUP_MS, "").catch(() => daytona.leave())
  }
}

// Asks by OpenCode 2's own question tool. Resolves to the option that was chosen; rejects where
// there is nobody to ask.
async function answerOf(question, text, options, context) {
  if (!question) throw new Error("nobody can be asked")
  const asked = { question: text, header: "Daytona", options }
  const { output } = await question.execute({ questions: [asked] }, context)
  return { answer: output.answers[0]?.[0] ?? "" }
}

export default { id: "git-daytona", server, setup }
