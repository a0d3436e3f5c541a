// Package docs is the folder of the documentation, see its README.md. Its only code is tests, which check that the
// pages are true.
package docs
