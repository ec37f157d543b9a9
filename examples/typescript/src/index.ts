import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';
import { greet } from './greet.js';

serveStdio(() => {
  const server = new McpServer({ name: 'notes', version: '1.0.0' });
  const notes: string[] = [];

  server.registerTool(
    'greet',
    {
      description: 'Greet somebody',
      inputSchema: z.object({ name: z.string().describe('Who is greeted') })
    },
    ({ name }) => ({ content: [{ type: 'text', text: greet(name) }] })
  );

  server.registerTool(
    'note',
    {
      description: 'Take a note, and tell how many there are',
      inputSchema: z.object({
        text: z.string().describe('What to note'),
        priority: z.enum(['low', 'high']).default('low')
      })
    },
    ({ text, priority }) => {
      notes.push(`[${priority}] ${text}`);
      return { content: [{ type: 'text', text: `${notes.length} notes:\n${notes.join('\n')}` }] };
    }
  );

  return server;
});

// What goes to stderr is shown by `devproxyctl logs`; stdout is the protocol's.
console.error(`notes: ready, pid ${process.pid}`);
