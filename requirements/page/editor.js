// What the JSON editor of the page is made of; scripts/vendor bundles it into one file.
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { json, jsonParseLinter } from "@codemirror/lang-json";
export { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
export { linter, lintKeymap } from "@codemirror/lint";
export { EditorState } from "@codemirror/state";
export { drawSelection, EditorView, keymap, lineNumbers } from "@codemirror/view";
export { tags } from "@lezer/highlight";
