// A table that is wider than the page scrolls in itself (the theme wraps it). Without a mouse that takes the focus.
const tables = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const wrap = target.closest(".md-typeset__scrollwrap");
    if (!wrap) continue;
    if (wrap.scrollWidth > wrap.clientWidth) wrap.tabIndex = 0;
    else wrap.removeAttribute("tabindex");
  }
});
addEventListener("load", () => {
  // The part that scrolls too: a narrower window changes its width, and not that of the table.
  for (const part of document.querySelectorAll(".md-typeset table, .md-typeset__scrollwrap")) tables.observe(part);
});
