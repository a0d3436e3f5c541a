//go:build !386

package remote

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/quietconn"
	"github.com/tierlimit/tierlimit/internal/redistest"
)

// Law 3: commands that find connections with TLS closed are sent once. This holds for a single command and for a
// pipeline, such as one for several slots of a Cluster, whether or not the node keeps a connection.
func TestLaw3CommandsOverClosedConnections(t *testing.T) {
	server := redistest.StartTLS(t)
	config := &tls.Config{RootCAs: server.CA}
	client := server.Server.Client(t, func(o *redis.Options) {
		o.Addr, o.Dialer = server.TLSAddr, quietconn.Dialer(time.Minute, config)
	})
	admin, sent := server.Server.Client(t), int64(0)
	for _, holding := range []*redis.Client{nil, client} {
		n := &node{client: client}
		n.held.client = holding
		for _, commands := range []int{1, 3, 3} { // go-redis uses other connections for pipelines
			redistest.KillIdle(t, client, admin, 8)
			sendIncrements(t, n, commands)
			sent += int64(commands)
			if ran, err := admin.Get(t.Context(), "k").Int64(); ran != sent || err != nil {
				t.Errorf("%d commands were run, %d sent; %v", ran, sent, err)
			}
		}
		n.held.returnAll(true)
	}
}

// sendIncrements sends a node commands that increment k, all of which should be run.
func sendIncrements(t *testing.T, n *node, commands int) {
	t.Helper()
	var cmds []redis.Cmder
	for range commands {
		cmds = append(cmds, chargeCmd{redis.NewStringCmd(t.Context(), "INCR", "k")})
	}
	if err := n.send(t.Context(), cmds...); err != nil {
		t.Error(err)
	}
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			t.Error(cmd.Err())
		}
	}
}

// Law 3: the same holds for a kept connection that has never been in the pool. Before go-redis sends a pipeline on such
// a connection, it reads what has arrived. If that is the end of the stream, the pipeline is sent on another connection.
func TestLaw3PipelinesOverAClosedConnectionThatIsKept(t *testing.T) {
	server := redistest.StartTLS(t)
	config := &tls.Config{RootCAs: server.CA}
	admin := server.Server.Client(t)
	const rounds = 5
	for range rounds {
		client := server.Server.Client(t, func(o *redis.Options) {
			o.Addr, o.Dialer = server.TLSAddr, quietconn.Dialer(time.Minute, config)
		})
		n := &node{client: client}
		n.held.client = client
		sendIncrements(t, n, 3)
		redistest.KillIdle(t, client, admin, 0)
		sendIncrements(t, n, 3)
		n.held.returnAll(true)
	}
	if ran, err := admin.Get(t.Context(), "k").Int64(); ran != 2*3*rounds || err != nil {
		t.Errorf("%d commands were run, %d sent; %v", ran, 2*3*rounds, err)
	}
}
