/** Change this text, save, and call the tool again. */
export function describe(count) {
  return `The counter stands at ${count}.`;
}
