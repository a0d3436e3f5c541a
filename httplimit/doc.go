// Package httplimit holds HTTP services, and clients of others' services, to limits
// that a whole fleet shares. It needs nothing but net/http and this module.
//
// # A server
//
// [New] makes a middleware out of limits; each is a rule and a key, which says whose
// request it is:
//
//	limiter, err := tiered.New(rdb)
//	search, err := limiter.Rule("search", limit.PerMinute(60))
//	limits, err := httplimit.New(limiter, httplimit.Limit(search, httplimit.ClientAddress))
//	http.Handle("/search", limits(handler))
//
// A middleware is a func(http.Handler) http.Handler, which routers such as chi take
// as it is. Several limits are charged together, all or none: see [Limit] for what a
// limit can be told (a cost, a plan, when it applies, what to settle afterwards).
//
// Keys are [ClientAddress], [Proxies.ClientAddress] behind reverse proxies,
// [Principal], [Header], [Pattern], [Everyone], or any function of the request;
// [Join] and [FirstOf] combine them.
//
// # What a client sees
//
// Each answer tells how much is left in the fields RateLimit-Policy and RateLimit
// (draft-ietf-httpapi-ratelimit-headers-11); [Headers] chooses X-RateLimit-*, or
// nothing. A denied request gets status 429, Retry-After in whole seconds, never
// early, and a problem document (RFC 9457) that names the limits in the way.
//
// Redis's absence is no error: the rules' outage policies decide (tiered.OnOutage).
// What tiered.Deny denies then gets status 503 instead of 429: the client did nothing
// wrong. A denial by tiered.Approximate is a 429: the limit still holds, only by each
// instance's share of it.
//
// Programs without net/http tell their clients the same by [Fields] and [Denied].
//
// An error of the limiter is never shown as 429: see [OnError].
//
// The response is neither buffered nor, unless [Settle] is used, wrapped: streaming,
// websockets and http.ResponseController work.
//
// # A client
//
// [NewTransport] makes an http.RoundTripper that keeps a fleet within the quota of a
// service it calls.
package httplimit
