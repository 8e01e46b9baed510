// The libraries that every part of the page draws with.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { render, Fragment };
export { useState, useEffect, useRef, useMemo, useId, useLayoutEffect } from "../vendor/hooks.js";
export { signal, computed, effect } from "../vendor/signals.js";
