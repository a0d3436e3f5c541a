// Package livepage shows what a limiter of this process is doing, on a page that is mounted like
// net/http/pprof:
//
//	page, err := livepage.New(limiter, livepage.HottestKeys())
//	mux.Handle("/debug/tierlimit/", page)
//
// The page shows whether Redis decides, the size of the fleet, the rules, and how and why they count as
// they do. It also shows decisions per second by rule and tier, the keys that ask most often (with
// [HottestKeys]), and the present state of a given key.
//
// Importing the package mounts nothing. Like pprof, the page has no login: mount it where only
// operators can reach it. It is served under localhost and IP addresses, and under other names only
// with [Hosts]. Keys may be personal data or credentials: see [HashKeys]. The page changes nothing
// unless [AllowReset] is given. It loads nothing from other servers. Without JavaScript, it shows the
// state at the time when it was loaded.
//
// A limiter without a page pays the loads of two pointers for each decision. With a page, a decision
// also hashes its key if some key has a limit of its own, and [HottestKeys] draws a random number.
// docs/live-page.md has more.
package livepage
