// A server on the TypeScript SDK 1.32.2: legacy only, over stdio, stateful
// Streamable HTTP, or the HTTP+SSE transport of 2024-11-05.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/sdk/server/mcp.js';
import { completable } from '@modelcontextprotocol/sdk/server/completable.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CreateMessageResultSchema,
  ElicitResultSchema,
  ListRootsResultSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
  UrlElicitationRequiredError
} from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod/v4';
import * as fixture from './fixture.mjs';

const { text } = fixture;

// Every session of this process, so that a change reaches all of them.
const sessions = new Set();

function newServer() {
  const server = new McpServer(
    { name: 'ts1-fixture', version: '1.32.2' },
    {
      capabilities: {
        tools: { listChanged: true },
        resources: { subscribe: true, listChanged: true },
        prompts: { listChanged: true },
        logging: {},
        completions: {}
      },
      instructions: 'legacy instructions'
    }
  );
  const subscribed = new Set();
  server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    subscribed.add(params.uri);
    return {};
  });
  server.server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
    subscribed.delete(params.uri);
    return {};
  });

  const tool = (name, inputSchema, run, extra = {}) =>
    server.registerTool(name, { description: `${name} of the fixture`, inputSchema, ...extra }, run);

  tool('echo', { text: z.string() }, ({ text: value }) => text(value));
  tool('add', { a: z.number(), b: z.number() }, ({ a, b }) => ({
    ...text(a + b),
    structuredContent: { sum: a + b }
  }), { outputSchema: { sum: z.number() } });
  tool('slow', { ms: z.number(), steps: z.number().optional() }, async ({ ms, steps = 3 }, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (let i = 1; i <= steps; i++) {
      if (progressToken !== undefined) {
        await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress: i, total: steps } });
      }
      await server.sendLoggingMessage({ level: 'info', logger: 'slow', data: { i } }, extra.sessionId);
      if ((await fixture.pause(ms / steps, extra.signal)) === 'aborted') {
        process.stderr.write('fixture: slow was cancelled\n');
        return text('cancelled');
      }
    }
    return text('done');
  });
  tool('crash', {}, () => fixture.crash());
  tool('fail', {}, () => {
    throw new Error('failing as told');
  });
  tool('big', { n: z.number() }, ({ n }) => text('x'.repeat(n)));
  const ask = async (_, extra) => {
    const answer = await extra.sendRequest({ method: 'elicitation/create', params: { ...fixture.question, mode: 'form' } }, ElicitResultSchema);
    return text(`${answer.action} ${answer.content?.name ?? ''}`.trim());
  };
  tool('ask', {}, ask);
  tool('push', {}, ask);
  tool('visit', {}, async (_, extra) => {
    const answer = await extra.sendRequest(
      { method: 'elicitation/create', params: { mode: 'url', message: 'visit', url: 'http://localhost/visit', elicitationId: randomUUID() } },
      ElicitResultSchema
    );
    return text(answer.action);
  });
  // Lets nobody in who has not been sent to a page before.
  const sent = new Set();
  tool('gate', { who: z.string() }, ({ who }) => {
    if (sent.has(who)) return text('open');
    sent.add(who);
    throw new UrlElicitationRequiredError([
      { mode: 'url', message: 'visit', url: 'http://localhost/visit', elicitationId: randomUUID() }
    ]);
  });
  tool('sample', {}, async (_, extra) => {
    const answer = await extra.sendRequest({ method: 'sampling/createMessage', params: fixture.sampling }, CreateMessageResultSchema);
    return text(answer.content.text);
  });
  tool('roots', {}, async (_, extra) => {
    const answer = await extra.sendRequest({ method: 'roots/list' }, ListRootsResultSchema);
    return text(answer.roots.map((root) => root.uri).join(' '));
  });
  tool('touch', {}, async () => {
    for (const session of sessions) await session.touch();
    return text('touched');
  });
  tool('pid', {}, () => text(process.pid));
  tool('env', { name: z.string() }, ({ name }) => text(process.env[name] ?? ''));
  tool('numbers', {}, () => ({ ...text('numbers'), structuredContent: fixture.numbers }));
  for (const name of fixture.extraTools()) tool(name, {}, () => text(name));

  server.registerResource('a', 'test://a', { mimeType: 'text/plain' }, (uri) => ({ contents: [{ uri: uri.href, text: 'A' }] }));
  server.registerResource(
    't',
    new ResourceTemplate('test://t/{id}', { list: undefined }),
    {},
    (uri, { id }) => ({ contents: [{ uri: uri.href, text: `t ${id}` }] })
  );
  server.registerPrompt(
    'p',
    {
      description: 'a prompt',
      argsSchema: { lang: completable(z.string(), (value) => fixture.languages.filter((lang) => lang.startsWith(value))) }
    },
    ({ lang }) => ({ messages: [{ role: 'user', content: { type: 'text', text: lang } }] })
  );

  const session = {
    server,
    async touch() {
      server.sendToolListChanged();
      if (subscribed.has('test://a')) await server.server.sendResourceUpdated({ uri: 'test://a' });
    }
  };
  sessions.add(session);
  server.server.onclose = () => sessions.delete(session);
  return server;
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length ? JSON.parse(Buffer.concat(chunks).toString('utf8')) : undefined;
}

function streamable() {
  const transports = new Map();
  return async (request, response) => {
    const id = request.headers['mcp-session-id'];
    let transport = transports.get(id);
    if (!transport) {
      if (id !== undefined) {
        response.writeHead(404, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', error: { code: -32001, message: 'Session not found' }, id: null }));
        return;
      }
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (session) => transports.set(session, transport),
        onsessionclosed: (session) => transports.delete(session)
      });
      await newServer().connect(transport);
    }
    await transport.handleRequest(request, response, await body(request));
  };
}

function sse() {
  const transports = new Map();
  return async (request, response) => {
    if (request.method === 'GET') {
      const transport = new SSEServerTransport('/messages', response);
      transports.set(transport.sessionId, transport);
      response.on('close', () => transports.delete(transport.sessionId));
      await newServer().connect(transport);
      return;
    }
    const session = new URL(request.url, 'http://localhost').searchParams.get('sessionId');
    const transport = transports.get(session);
    if (!transport) return response.writeHead(404).end('no such session');
    await transport.handlePostMessage(request, response, await body(request));
  };
}

fixture.countStart();
const { transport, port } = fixture.options;
if (transport === 'stdio') {
  await newServer().connect(new StdioServerTransport(process.stdin, fixture.unquoteOutput(process.stdout)));
} else {
  const serve = transport === 'sse' ? sse() : streamable();
  createServer((request, response) => {
    if (request.url === '/health') return response.end('ok');
    serve(request, fixture.unquoteResponse(response)).catch((error) => {
      process.stderr.write(`fixture: ${error.stack}\n`);
      if (!response.headersSent) response.writeHead(500);
      response.end();
    });
  }).listen(port, '127.0.0.1');
}
