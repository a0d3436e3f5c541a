// Package httplimit limits the requests that an HTTP service receives, and those that a client
// sends to other services, by limits that a whole fleet shares. It needs nothing but net/http and
// this module.
//
// # A server
//
// [New] makes a middleware from limits. Each limit is a rule and a key, which identifies whose quota a
// request uses:
//
//	limiter, err := tiered.New(rdb)
//	search, err := limiter.Rule("search", limit.PerMinute(60))
//	limits, err := httplimit.New(limiter, httplimit.Limit(search, httplimit.ClientAddress))
//	http.Handle("/search", limits(handler))
//
// A middleware is a func(http.Handler) http.Handler, which routers such as chi accept as it is.
// Several limits are charged together, all or none. Options of [Limit] set a limit's cost, the rule
// of a plan, when it applies, and what to settle afterwards.
//
// Keys are [ClientAddress], [Proxies.ClientAddress] behind reverse proxies,
// [Principal], [Header], [Pattern], [Everyone], or any function of the request;
// [Join] and [FirstOf] combine them.
//
// # What clients are sent
//
// Each response says how much is left in the fields RateLimit-Policy and RateLimit
// (draft-ietf-httpapi-ratelimit-headers-11). With [Headers], it says so in X-RateLimit-*, or not at
// all. A denied request gets status 429, Retry-After in whole seconds, rounded up, and a problem
// document (RFC 9457) that names the limits that denied it.
//
// A lost Redis is not an error: the rules' outage policies decide (tiered.OnOutage). A request that is
// then denied by tiered.Deny gets status 503 instead of 429, because the client did nothing wrong. A
// denial by tiered.Approximate is a 429: the limit still holds, enforced by each instance's share of
// it.
//
// Programs without net/http can send the same responses with [Fields] and [Denied].
//
// An error of the limiter is never shown as 429: see [OnError].
//
// The response is not buffered, and it is wrapped only if [Settle] is used. Streaming, websockets and
// http.ResponseController work.
//
// # A client
//
// [NewTransport] makes an http.RoundTripper that keeps a fleet within the quota of a
// service it calls.
package httplimit
