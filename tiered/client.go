package tiered

import (
	"crypto/tls"
	"errors"
	"io"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/remote"
)

// keepingDeadlines returns a client that keeps the deadlines of contexts, see [remote.KeepDeadlines]. (On a
// Cluster that concerns the clients of its nodes, which package remote uses.) It reports whether callers may
// make their own trips, which they may not with a client that does not keep deadlines: one of an unknown
// type, one with time-outs of -2, by which go-redis sets no deadline on its connections, or one that runs
// functions of the program on each new connection that do not learn of the deadline, or may ignore it.
func keepingDeadlines(client redis.UniversalClient) (_ redis.UniversalClient, keeps bool) {
	switch client := client.(type) {
	case *redis.Client:
		o := client.Options()
		mayBlock := o.OnConnect != nil || o.CredentialsProvider != nil || o.StreamingCredentialsProvider != nil
		return remote.KeepDeadlines(client), o.ReadTimeout >= 0 && o.WriteTimeout >= 0 && !mayBlock
	case *redis.ClusterClient:
		o := client.Options()
		mayBlock := o.OnConnect != nil || o.CredentialsProvider != nil || o.StreamingCredentialsProvider != nil
		return client, o.ReadTimeout >= 0 && o.WriteTimeout >= 0 && !mayBlock
	}
	return client, false
}

// tlsHint says what may be wrong where only one side speaks TLS. No error tells: a server
// that does hangs up, and one that does not waits for more.
func tlsHint(client redis.UniversalClient, err error) string {
	var config *tls.Config
	switch client := client.(type) {
	case *redis.Client:
		config = client.Options().TLSConfig
	case *redis.ClusterClient:
		config = client.Options().TLSConfig
	}
	switch {
	case config == nil && errors.Is(err, io.EOF):
		return "the server hangs up without an answer: it may speak TLS only (set TLSConfig, or use rediss:// in the URL)"
	case config != nil && remote.KindOf(err) == remote.Timeout:
		return "the server does not answer: it may not speak TLS, which the client is set to (TLSConfig)"
	}
	return ""
}
