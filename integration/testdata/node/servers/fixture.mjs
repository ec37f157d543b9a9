// What the fixture servers have in common: how a test counts their starts,
// changes what they offer, and tells them how to listen.
import { appendFileSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

// A test starts `node dist/index.mjs`, which only imports one of the servers;
// what the "build" wrote beside it decides what the server offers.
const dist = dirname(process.argv[1]);

export const options = parse(process.argv.slice(2));

function parse(args) {
  const [transport = 'stdio', ...rest] = args;
  const flags = { transport, port: 0, legacy: 'serve' };
  for (let i = 0; i < rest.length; i++) {
    if (rest[i] === '--port') flags.port = Number(rest[++i]);
    else if (rest[i] === '--modern-only') flags.legacy = 'reject';
    else throw new Error(`unknown flag ${rest[i]}`);
  }
  return flags;
}

// The tools that the current "build" adds, by name.
export function extraTools() {
  try {
    return JSON.parse(readFileSync(join(dist, 'features.json'), 'utf8')).tools ?? [];
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
}

// One line for each start, and one more for each earlier process that is
// still alive: promise 1 says there is none.
export function countStart() {
  const file = process.env.FIXTURE_STARTS;
  if (!file) return;
  let earlier = [];
  try {
    earlier = readFileSync(file, 'utf8').split('\n').filter((line) => line.startsWith('start '));
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  appendFileSync(file, `start ${process.pid}\n`);
  for (const line of earlier) {
    const pid = Number(line.split(' ')[1]);
    if (pid !== process.pid && alive(pid)) appendFileSync(file, `overlap ${pid} ${process.pid}\n`);
  }
}

function alive(pid) {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  try {
    // A zombie that its parent forgot, as some containers' init does, has
    // ended. Where there is no /proc the signal alone has to tell.
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ');
  } catch {
    return process.platform !== 'linux';
  }
}

// JSON.stringify cannot write 1.0, 1e400 or a 64-bit integer, but servers in
// other languages do. A string made by raw() loses its quotes on the way out.
export const raw = (text) => `@raw:${text}@`;

const unquoted = (text) => text.replace(/"@raw:([^@]*)@"/g, '$1');

export const numbers = {
  big: raw('12345678901234567890'),
  one: raw('1.0'),
  huge: raw('1e400'),
  small: raw('-0.000'),
  text: 'a \u2028 <b> & é'
};

// Patches what a stream or response writes so that raw numbers come out.
export function unquoteOutput(stream) {
  const write = stream.write.bind(stream);
  const end = stream.end?.bind(stream);
  const convert = (chunk) => {
    if (typeof chunk === 'string') return unquoted(chunk);
    if (chunk instanceof Uint8Array) {
      const text = Buffer.from(chunk).toString('utf8');
      return text.includes('"@raw:') ? unquoted(text) : chunk;
    }
    return chunk;
  };
  stream.write = (chunk, ...rest) => write(convert(chunk), ...rest);
  if (end) stream.end = (chunk, ...rest) => end(convert(chunk), ...rest);
  return stream;
}

// HTTP responses that announced their length cannot change it afterwards.
export function unquoteResponse(response) {
  const writeHead = response.writeHead.bind(response);
  response.writeHead = (status, ...rest) => {
    response.removeHeader('content-length');
    const headers = rest.at(-1);
    if (headers && typeof headers === 'object') {
      if (Array.isArray(headers)) {
        for (let i = 0; i < headers.length; i += 2) {
          if (String(headers[i]).toLowerCase() === 'content-length') headers.splice(i, 2);
        }
      } else {
        for (const key of Object.keys(headers)) {
          if (key.toLowerCase() === 'content-length') delete headers[key];
        }
      }
    }
    return writeHead(status, ...rest);
  };
  return unquoteOutput(response);
}

// Waits ms, or until the signal aborts; tells which.
export function pause(ms, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve('aborted');
    const timer = setTimeout(() => resolve('elapsed'), ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve('aborted');
    }, { once: true });
  });
}

export const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });

// Dies as a program with a bug does: a word on stderr and a code.
export function crash(code = 7) {
  process.stderr.write('fixture: crashing as told\n', () => process.exit(code));
  return new Promise(() => {});
}

// What the ask tools want to know.
export const question = {
  message: 'who?',
  requestedSchema: {
    type: 'object',
    properties: { name: { type: 'string' } },
    required: ['name']
  }
};

export const sampling = {
  messages: [{ role: 'user', content: { type: 'text', text: 'say something' } }],
  maxTokens: 10
};

export const languages = ['go', 'rust', 'typescript'];
