// Package pages tests the live page and the demo in a browser. They must keep themselves up to date, be usable by
// keyboard and with a screen reader, and be readable in light and dark and on a phone. They must load nothing from
// elsewhere, and run no script except their own.
//
// The tests need Chromium and are built only with the tag chromium; make pages runs them. They are a separate module,
// so that nothing else has their dependencies.
package pages
