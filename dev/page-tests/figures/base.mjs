// Parts of all invented answers.

export const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();

export function listOf(items) {
  return { items, next: null, as_of: new Date().toISOString() };
}
