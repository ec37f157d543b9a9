// The program that all TypeScript clients of the Go tests live in, and the line
// protocol that it speaks with them. One process has room for every client,
// since most of what a client costs is loading its SDK.
//
// In, one JSON object a line: {"client":1,"id":1,"op":"callTool",…}. Operations
// run side by side; {"op":"abort","target":1} aborts one that is open. A client
// begins with "new", which names its SDK and its options, and ends with "close".
// Out, one JSON object a line: {"client":1,"id":1,"result":…} or
// {"client":1,"id":1,"error":…} for each operation, and {"client":1,"event":…}
// for everything the client hears unasked.
import { closeSync, openSync } from 'node:fs';
import { createInterface } from 'node:readline';

const sdks = {
  ts1: () => import('./ts1.mjs'),
  ts2: () => import('./ts2.mjs')
};

const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } };

export const reverseMethods = ['elicitation/create', 'sampling/createMessage', 'roots/list'];

export const notificationMethods = [
  'notifications/message',
  'notifications/resources/updated',
  'notifications/tools/list_changed',
  'notifications/prompts/list_changed',
  'notifications/resources/list_changed'
];

const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

// Never answers; ends with the request that it belongs to.
const silence = (_, signal) =>
  new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted')), { once: true }));

function plainError(error) {
  const { name, message, code, data } = error ?? {};
  return { name, message: message ?? String(error), code, data };
}

// What the host of a client sees of it: an SDK makes the operations from this.
class Seat {
  open = new Map();

  // What this client answers when the server asks; the answer operation
  // replaces one. An answer with an "error" member is thrown.
  answers = {
    'elicitation/create': ({ mode }) => (mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: 'Bob' } }),
    'sampling/createMessage': () => ({ role: 'assistant', model: 'fixture', content: { type: 'text', text: 'hello' } }),
    'roots/list': () => ({ roots: [{ uri: 'file:///fixture', name: 'fixture' }] })
  };

  constructor(number, { mode, listChanged, command, args, cwd, env, stderr }) {
    this.number = number;
    this.mode = mode;
    this.listChanged = listChanged;
    this.capabilities = capabilities;
    // The test reads there what the server says.
    this.stderr = openSync(stderr, 'a');
    this.server = { command, args, cwd, env, stderr: this.stderr };
  }

  emit(event, fields = {}) {
    print({ client: this.number, event, ...fields });
  }

  async answer(method, params, signal) {
    this.emit('request', { method, params });
    const result = await this.answers[method](params ?? {}, signal);
    if (result.error) throw Object.assign(new Error(result.error.message), result.error);
    return result;
  }

  use(operations) {
    this.operations = {
      ...operations,
      answer: ({ method, result, silent }) => {
        this.answers[method] = silent ? silence : () => result;
      },
      abort: ({ target, reason }) => {
        const controller = this.open.get(target);
        if (!controller) throw new Error(`operation ${target} is not open`);
        controller.abort(reason);
      },
      close: async () => {
        seats.delete(this.number);
        await operations.close();
        closeSync(this.stderr);
      }
    };
  }

  async perform({ id, op, client, ...args }) {
    const controller = new AbortController();
    this.open.set(id, controller);
    try {
      if (!this.operations[op]) throw new Error(`unknown operation ${op}`);
      const request = { signal: controller.signal };
      if (args.timeout !== undefined) request.timeout = args.timeout;
      if (args.progress) request.onprogress = (progress) => this.emit('progress', { id, params: progress });
      print({ client, id, result: (await this.operations[op](args, request)) ?? {} });
    } catch (error) {
      print({ client, id, error: plainError(error) });
    } finally {
      this.open.delete(id);
    }
  }
}

const seats = new Map();

async function perform(line) {
  const { client, id, op, ...args } = line;
  if (op !== 'new') {
    const seat = seats.get(client);
    if (seat) return seat.perform(line);
    return print({ client, id, error: { message: `there is no client ${client}` } });
  }
  try {
    const { make } = await sdks[args.sdk]();
    const seat = new Seat(client, args);
    seat.use(make(seat));
    seats.set(client, seat);
    print({ client, id, result: {} });
  } catch (error) {
    print({ client, id, error: plainError(error) });
  }
}

const input = createInterface({ input: process.stdin });
input.on('line', (line) => void perform(JSON.parse(line)));
input.on('close', async () => {
  await Promise.allSettled([...seats.values()].map((seat) => seat.operations.close()));
  process.exit(0);
});
