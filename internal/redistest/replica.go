package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// promptReplication returns arguments of masters that do not keep their replicas waiting. With the defaults,
// replicas get their first copy five seconds late, and ten seconds pass until they are known to follow.
func promptReplication() []string {
	return []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}
}

// followed checks that a master has a replica that has its copy and is kept up to date. A replica reports earlier
// that its link is up, but until its first acknowledgement, up to a second later, nothing further is sent to it.
func followed(tb testing.TB, master *Server) error {
	tb.Helper()
	info, err := master.Client(tb).Info(context.Background(), "replication").Result()
	if err == nil && (!strings.Contains(info, "state=online") || strings.Contains(info, ",offset=0,")) {
		err = fmt.Errorf("no replica follows %s:\n%s", master.Addr(), info)
	}
	return err
}
