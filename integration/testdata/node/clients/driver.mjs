// The line protocol that both TypeScript clients speak with the Go tests.
//
// In, one JSON object a line: {"id":1,"op":"callTool",…}. Operations run side
// by side; {"op":"abort","target":1} aborts one that is open.
// Out, one JSON object a line: {"id":1,"result":…} or {"id":1,"error":…} for
// each operation, and {"event":…} for everything the client hears unasked.
import { createInterface } from 'node:readline';

export const options = parse(process.argv.slice(2));

function parse(args) {
  const flags = { mode: 'auto', capabilities: true, listChanged: false };
  while (args.length) {
    const flag = args.shift();
    if (flag === '--') {
      [flags.command, ...flags.args] = args;
      return flags;
    }
    if (flag === '--mode') flags.mode = args.shift();
    else if (flag === '--no-capabilities') flags.capabilities = false;
    else if (flag === '--list-changed') flags.listChanged = true;
    else if (flag === '--cwd') flags.cwd = args.shift();
    else throw new Error(`unknown flag ${flag}`);
  }
  throw new Error('no command after --');
}

export const capabilities = options.capabilities
  ? { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } }
  : {};

const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

export const emit = (event, fields = {}) => print({ event, ...fields });

// What this client answers when the server asks; the answer operation replaces
// one. An answer with an "error" member is thrown.
const answers = {
  'elicitation/create': ({ mode }) => (mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: 'Bob' } }),
  'sampling/createMessage': () => ({ role: 'assistant', model: 'fixture', content: { type: 'text', text: 'hello' } }),
  'roots/list': () => ({ roots: [{ uri: 'file:///fixture', name: 'fixture' }] })
};

export const reverseMethods = Object.keys(answers);

export async function answer(method, params, signal) {
  emit('request', { method, params });
  const result = await answers[method](params ?? {}, signal);
  if (result.error) throw Object.assign(new Error(result.error.message), result.error);
  return result;
}

// Never answers; ends with the request that it belongs to.
const silence = (_, signal) =>
  new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted')), { once: true }));

export const notificationMethods = [
  'notifications/message',
  'notifications/resources/updated',
  'notifications/tools/list_changed',
  'notifications/prompts/list_changed',
  'notifications/resources/list_changed'
];

function plainError(error) {
  const { name, message, code, data } = error ?? {};
  return { name, message: message ?? String(error), code, data };
}

// Runs the operations that arrive on stdin until it ends.
export function run(operations) {
  const open = new Map();
  const all = {
    ...operations,
    answer: ({ method, result, silent }) => {
      answers[method] = silent ? silence : () => result;
    },
    abort: ({ target, reason }) => {
      const controller = open.get(target);
      if (!controller) throw new Error(`operation ${target} is not open`);
      controller.abort(reason);
    }
  };
  const perform = async ({ id, op, ...args }) => {
    const controller = new AbortController();
    open.set(id, controller);
    try {
      if (!all[op]) throw new Error(`unknown operation ${op}`);
      const request = { signal: controller.signal };
      if (args.timeout !== undefined) request.timeout = args.timeout;
      if (args.progress) request.onprogress = (progress) => emit('progress', { id, params: progress });
      print({ id, result: (await all[op](args, request)) ?? {} });
    } catch (error) {
      print({ id, error: plainError(error) });
    } finally {
      open.delete(id);
    }
  };
  const input = createInterface({ input: process.stdin });
  input.on('line', (line) => void perform(JSON.parse(line)));
  input.on('close', async () => {
    await all.close({});
    process.exit(0);
  });
}
