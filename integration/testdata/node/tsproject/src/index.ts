import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { countStart } from './starts.js';
import { tools } from './tools.js';

countStart();
serveStdio(() => {
  const server = new McpServer({ name: 'tsproject', version: '1.0.0' }, { capabilities: { tools: { listChanged: true } } });
  for (const [name, answer] of Object.entries(tools)) {
    server.registerTool(name, { description: name }, () => ({ content: [{ type: 'text', text: answer }] }));
  }
  return server;
});
