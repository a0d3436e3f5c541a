// Package docs is the folder of the documentation, see README.md there. It has no code but tests, which
// hold the pages to what they say.
package docs
