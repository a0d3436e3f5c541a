package tiered

import "github.com/redis/go-redis/v9"

// keepingDeadlines returns a client that keeps the deadlines of contexts, over the same
// connections and with the same hooks as the one that was handed in, and reports whether there
// is one. Go-redis's clients keep them only if they were told so (ContextTimeoutEnabled), and
// wait for seconds otherwise. Callers who make their own trips (remote.Options.Inline) must not
// wait for so long, and a hung Redis must not tie up connections.
//
// WithTimeout makes a client with options of its own, which nobody else has seen yet. A
// Cluster's client has nothing like it.
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
