// Package grpclimit holds gRPC services, and clients of others' services, to limits
// that a whole fleet shares. It is a module of its own, so that gRPC is no dependency
// of the library.
//
//	limiter, err := tiered.New(rdb)
//	search, err := limiter.Rule("search", limit.PerMinute(60))
//	limits, err := grpclimit.NewServer(limiter, grpclimit.Limit(search, grpclimit.Peer))
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limits.Unary),
//		grpc.ChainStreamInterceptor(limits.Stream),
//	)
//
// Several limits are charged together, all or none. Keys are [Peer], [Metadata],
// [Method], [Principal], [Everyone], or any function of the call; [Join] and [FirstOf]
// combine them. What a call takes may be known when it is over only: [Settle] and [HandlerCost] correct
// what was reserved.
//
// # What a client gets
//
// A denied call ends with status RESOURCE_EXHAUSTED and two details: RetryInfo, when
// the call would be granted, and QuotaFailure, which rules are in the way.
//
// Redis's absence is no error: the rules' outage policies decide (tiered.OnOutage).
// What tiered.Deny denies then ends with UNAVAILABLE and RetryInfo instead, as do errors
// of the limiter, see [OnError].
//
// [NewClient] keeps a fleet of clients within the quota of a service it calls.
package grpclimit
