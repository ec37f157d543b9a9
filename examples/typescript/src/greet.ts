/** Change this text, save, and call the tool again. */
export function greet(name: string): string {
  return `Hello, ${name}!`;
}
