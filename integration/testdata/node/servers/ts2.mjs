// A server on the TypeScript SDK 2.4.0: both eras from one factory, over stdio
// or Streamable HTTP (where its legacy side is stateless).
import { createServer } from 'node:http';
import { McpServer, ResourceTemplate, completable, createMcpHandler, inputRequired, inputResponse } from '@modelcontextprotocol/server';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import { toNodeHandler } from '@modelcontextprotocol/node';
import * as z from 'zod/v4';
import * as fixture from './fixture.mjs';

const { text } = fixture;

// Set where an HTTP handler owns the listen streams.
let notifier;

function factory({ era }) {
  const server = new McpServer(
    { name: 'ts2-fixture', version: '2.4.0', title: 'TypeScript 2' },
    {
      capabilities: {
        tools: { listChanged: true },
        resources: { subscribe: true, listChanged: true },
        prompts: { listChanged: true },
        logging: {},
        completions: {}
      },
      instructions: 'use me well'
    }
  );
  const subscribed = new Set();
  if (era === 'legacy') {
    server.server.setRequestHandler('resources/subscribe', ({ params }) => {
      subscribed.add(params.uri);
      return {};
    });
    server.server.setRequestHandler('resources/unsubscribe', ({ params }) => {
      subscribed.delete(params.uri);
      return {};
    });
  }

  const tool = (name, inputSchema, run, extra = {}) =>
    server.registerTool(name, { description: `${name} of the fixture`, inputSchema: z.object(inputSchema), ...extra }, run);

  tool('echo', { text: z.string() }, ({ text: value }) => text(value));
  tool('add', { a: z.number(), b: z.number() }, ({ a, b }) => ({
    ...text(a + b),
    structuredContent: { sum: a + b }
  }), { outputSchema: z.object({ sum: z.number() }) });
  tool('slow', { ms: z.number(), steps: z.number().optional() }, async ({ ms, steps = 3 }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let i = 1; i <= steps; i++) {
      if (progressToken !== undefined) {
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: i, total: steps } });
      }
      await ctx.mcpReq.log('info', { i }, 'slow');
      if ((await fixture.pause(ms / steps, ctx.mcpReq.signal)) === 'aborted') {
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
  tool('ask', {}, (_, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, 'who');
    if (answer.kind === 'missing') {
      return inputRequired({ inputRequests: { who: inputRequired.elicit({ ...fixture.question, mode: 'form' }) }, requestState: 'asked' });
    }
    return text(`${answer.action} ${answer.content?.name ?? ''}`.trim());
  });
  tool('visit', {}, (_, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, 'page');
    if (answer.kind === 'missing') {
      return inputRequired({ inputRequests: { page: inputRequired.elicitUrl({ message: 'visit', url: 'http://localhost/visit' }) } });
    }
    return text(answer.action);
  });
  tool('push', {}, async (_, ctx) => {
    const answer = await ctx.mcpReq.elicitInput({ ...fixture.question, mode: 'form' });
    return text(`${answer.action} ${answer.content?.name ?? ''}`.trim());
  });
  tool('sample', {}, (_, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, 'model');
    if (answer.kind === 'missing') {
      return inputRequired({ inputRequests: { model: inputRequired.createMessage(fixture.sampling) } });
    }
    return text(answer.result.content.text);
  });
  tool('roots', {}, (_, ctx) => {
    const answer = inputResponse(ctx.mcpReq.inputResponses, 'roots');
    if (answer.kind === 'missing') {
      return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
    }
    return text(answer.roots.map((root) => root.uri).join(' '));
  });
  tool('touch', {}, async () => {
    if (notifier) {
      notifier.toolsChanged();
      notifier.resourceUpdated('test://a');
    }
    if (!notifier || era === 'legacy') {
      server.sendToolListChanged();
      if (era === 'modern' || subscribed.has('test://a')) await server.server.sendResourceUpdated({ uri: 'test://a' });
    }
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
      argsSchema: z.object({
        lang: completable(z.string(), (value) => fixture.languages.filter((lang) => lang.startsWith(value)))
      })
    },
    ({ lang }) => ({ messages: [{ role: 'user', content: { type: 'text', text: lang } }] })
  );
  return server;
}

fixture.countStart();
const { transport, port, legacy } = fixture.options;
if (transport === 'stdio') {
  const stdio = new StdioServerTransport(process.stdin, fixture.unquoteOutput(process.stdout));
  serveStdio(factory, { legacy, transport: stdio });
} else {
  const handler = createMcpHandler(factory, { legacy: legacy === 'reject' ? 'reject' : 'stateless' });
  notifier = handler.notify;
  const serve = toNodeHandler(handler);
  createServer((request, response) => {
    if (request.url === '/health') return response.end('ok');
    serve(request, fixture.unquoteResponse(response));
  }).listen(port, '127.0.0.1');
}
