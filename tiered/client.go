package tiered

import "github.com/redis/go-redis/v9"

// keepingDeadlines returns a client that keeps the deadlines of contexts, over the same connections
// and with the same hooks as the one that was handed in, and reports whether there is one. Clients
// of go-redis keep them only if ContextTimeoutEnabled is set, and wait for seconds otherwise.
// Callers that make their own trips (remote.Options.Inline) must not wait that long, and a hung
// Redis must not tie up connections.
//
// WithTimeout returns a client with its own copy of the options, which can be changed safely. A
// Cluster's client has no such method.
func keepingDeadlines(client redis.UniversalClient) (_ redis.UniversalClient, keeps bool) {
	node, ok := client.(*redis.Client)
	if !ok {
		return client, false
	}
	if given := node.Options(); !given.ContextTimeoutEnabled {
		node = node.WithTimeout(given.ReadTimeout)
		own := node.Options()
		own.WriteTimeout, own.ContextTimeoutEnabled = given.WriteTimeout, true
	}
	return node, true
}
