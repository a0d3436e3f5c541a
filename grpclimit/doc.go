// Package grpclimit limits calls to gRPC services, and calls that clients make to services of others,
// by limits that a whole fleet shares. It is a module of its own, so that the library does not depend
// on gRPC.
//
//	limiter, err := tiered.New(rdb)
//	search, err := limiter.Rule("search", limit.PerMinute(60))
//	limits, err := grpclimit.NewServer(limiter, grpclimit.Limit(search, grpclimit.Peer))
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limits.Unary),
//		grpc.ChainStreamInterceptor(limits.Stream),
//	)
//
// Several limits are charged together, all or none. Keys are [Peer], [Metadata], [Method], [Principal],
// [Everyone], or any function of the call; [Join] and [FirstOf] combine them. If the cost of a call is
// known only when the call is over, [Settle] and [HandlerCost] correct the charge.
//
// # What a client gets
//
// A denied call ends with status RESOURCE_EXHAUSTED and two details: RetryInfo says when the call
// would be granted, and QuotaFailure names the rules that denied it. If the denial was repeated from memory,
// RetryInfo may be somewhat too short; if it was made without Redis, it says when to ask again (see
// [limit.Decision.RetryAfter]). The retryPolicy of a client's service
// config does not read RetryInfo, so leave RESOURCE_EXHAUSTED out of its codes, and retry in the program.
//
// A lost Redis is not an error: the rules' outage policies decide (tiered.OnOutage). A call that is
// then denied by tiered.Deny ends with UNAVAILABLE and RetryInfo instead. So do calls with an error of
// the limiter, except mistakes and the context's own errors, see [OnError].
//
// [NewClient] keeps a fleet of clients within the quota of a service it calls.
package grpclimit
