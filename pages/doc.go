// Package pages tests the live page and the demo in a browser: that they keep
// themselves up to date, can be used by keyboard, tell a screen reader what they are,
// can be read in light and dark and on a phone, load nothing from elsewhere, and run no
// script but their own.
//
// The tests need Chromium and are built with the tag chromium only: make pages runs
// them. They are a module of their own, whose dependencies nobody else needs.
package pages
