// The editor of JSON and policies, in the place of a text field. Loaded only where there is one.

let editor = null;
const views = new WeakMap(); // the editor of each text field

export function goTo(button) {
  const view = views.get(document.getElementById(button.dataset.of));
  if (!view) return;
  const line = view.state.doc.line(Math.min(+button.dataset.line, view.state.doc.lines));
  view.dispatch({ selection: { anchor: Math.min(line.from + +button.dataset.column - 1, line.to) }, scrollIntoView: true });
  view.focus();
}

export async function edit(area, library) {
  editor ??= await import(library);
  if (!area.isConnected) return;
  const frame = document.createElement("div");
  frame.className = "editor-frame";
  const label = document.querySelector(`label[for="${CSS.escape(area.id)}"]`);
  const described = area.getAttribute("aria-describedby");
  const isCedar = "cedar" in area.dataset;
  const nonce = document.querySelector("meta[name=csp-nonce]").content;
  const view = new editor.EditorView({
    parent: frame,
    state: editor.EditorState.create({
      doc: area.value,
      extensions: [
        editor.EditorView.cspNonce.of(nonce),
        editor.lineNumbers(),
        editor.history(),
        editor.drawSelection(),
        editor.indentOnInput(),
        editor.bracketMatching(),
        ...(isCedar ? [] : [editor.json(), editor.linter(parsed)]),
        editor.syntaxHighlighting(highlighted()),
        editor.EditorView.lineWrapping,
        // Tab is left to the browser, so that a keyboard gets out again.
        editor.keymap.of([...editor.defaultKeymap, ...editor.historyKeymap, ...editor.lintKeymap]),
        editor.EditorView.contentAttributes.of({
          "aria-label": label?.textContent.trim() ?? area.name,
          ...(described ? { "aria-describedby": described } : {}),
          spellcheck: "false",
        }),
        editor.EditorView.updateListener.of((update) => {
          if (isCedar) requestAnimationFrame(() => paint(update.view, area.dataset.words));
          if (!update.docChanged) return;
          area.value = update.state.doc.toString();
          area.dispatchEvent(new Event("input", { bubbles: true }));
        }),
        editor.EditorView.theme({
          "&": { fontSize: "0.8125rem", maxHeight: "22rem", backgroundColor: "transparent" },
          "&.cm-focused": { outline: "none" },
          ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", overflow: "auto" },
          ".cm-content": { minHeight: (area.dataset.json ?? area.dataset.cedar) === "tall" ? "7.5rem" : "4rem", caretColor: "var(--ink)" },
          ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--soft)", border: "0" },
          ".cm-cursor": { borderLeftColor: "var(--ink)" },
          "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
            backgroundColor: "var(--accent-wash)",
          },
          ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)" },
        }),
      ],
    }),
  });
  area.hidden = true;
  area.after(frame);
  views.set(area, view);
  if (isCedar) paint(view, area.dataset.words);
  label?.addEventListener("click", () => view.focus());
}

function parsed(view) {
  return view.state.doc.length === 0 ? [] : editor.jsonParseLinter()(view);
}

function highlighted() {
  const { tags } = editor;
  return editor.HighlightStyle.define([
    { tag: tags.propertyName, color: "var(--accent)" },
    { tag: tags.string, color: "var(--good)" },
    { tag: tags.number, color: "var(--hot)" },
    { tag: [tags.bool, tags.null], color: "var(--warn)" },
  ]);
}

// --- Cedar ---------------------------------------------------------------------------------------------------------

// As `highlighted` of policies_page.py marks it; the words come from there.
const CEDAR = String.raw`(?<comment>\/\/.*)|(?<string>"(?:[^"\\]|\\.)*"?)|(?<note>@[A-Za-z_]+)|\b(?<key>WORDS)\b`;

// Not with elements that have a style: the browser would give it to what is typed there, as an inline style.
function paint(view, words) {
  if (!window.Highlight || !view.dom.isConnected) return;
  const found = { comment: [], string: [], note: [], key: [] };
  const cedar = new RegExp(CEDAR.replace("WORDS", words), "g");
  for (const { from, to } of view.visibleRanges) {
    for (const match of view.state.sliceDoc(from, to).matchAll(cedar)) {
      const [kind, text] = Object.entries(match.groups).find(([, text]) => text !== undefined);
      const range = new Range();
      const [begin, end] = [from + match.index, from + match.index + text.length].map((at) => view.domAtPos(at));
      range.setStart(begin.node, begin.offset);
      range.setEnd(end.node, end.offset);
      found[kind].push(range);
    }
  }
  for (const [kind, ranges] of Object.entries(found)) CSS.highlights.set(`cedar-${kind}`, new Highlight(...ranges));
}
