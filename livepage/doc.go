// Package livepage shows what a limiter of this process is doing, on a page that is
// mounted as net/http/pprof is:
//
//	page, err := livepage.New(limiter, livepage.HottestKeys())
//	mux.Handle("/debug/tierlimit/", page)
//
// It shows whether Redis decides, the size of the fleet, the rules with how they count
// and why, decisions per second by rule and tier, the keys that ask most often (with
// [HottestKeys]), and what a given key's state is now.
//
// Nothing is mounted by importing the package. Like pprof the page has no login: mount
// it where only operators come. It is served under localhost and IP addresses, and under
// names only with [Hosts]. Keys may be personal data or credentials: see
// [HashKeys]. It changes nothing unless [AllowReset] is given. It loads nothing from
// elsewhere; without JavaScript it shows what was when it was loaded.
//
// A limiter without a page pays the loads of two pointers for each decision. With a page a decision
// also hashes its key once there is a key with a limit of its own, and [HottestKeys] draws a random
// number. docs/live-page.md has more.
package livepage
