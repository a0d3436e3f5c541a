// Package pages tests the live page, the demo and a report in a browser. The first two must keep themselves up to date,
// and be usable by keyboard and with a screen reader. All must be readable in light and dark and on a phone, load
// nothing from elsewhere, and run no script except their own.
//
// The tests need Chromium and are built only with the tag chromium; make pages runs them. They are a separate module,
// so that nothing else has their dependencies.
package pages
