package tiered

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
)

// TLS works with a private certificate authority and with client certificates. Each mistake with TLS is an error
// at start that says what is wrong. If it looks like an unreachable Redis, the log gives the reason instead.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.StartTLS(t)
	asking := redistest.StartTLS(t, "--tls-auth-clients", "yes")
	if err := server.Server.Client(t).ConfigSet(context.Background(), "requirepass", "right").Err(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		addr     string
		config   *tls.Config
		password string
		err      error
		says     string // expected in the error or in the log
	}{
		"all right":            {addr: server.TLSAddr, config: &tls.Config{RootCAs: server.CA}, password: "right"},
		"by name":              {addr: server.TLSAddr, config: &tls.Config{RootCAs: server.CA, ServerName: server.Host}, password: "right"},
		"client's certificate": {addr: asking.TLSAddr, config: &tls.Config{RootCAs: asking.CA, Certificates: []tls.Certificate{asking.Client}}},
		"no certificate":       {addr: asking.TLSAddr, config: &tls.Config{RootCAs: asking.CA}, err: limit.ErrTLS, says: "certificate"},
		"unknown authority":    {addr: server.TLSAddr, config: &tls.Config{RootCAs: x509.NewCertPool()}, err: limit.ErrTLS, says: "RootCAs"},
		"other name":           {addr: server.TLSAddr, config: &tls.Config{RootCAs: server.CA, ServerName: "other.example"}, err: limit.ErrTLS, says: "other.example"},
		"wrong password":       {addr: server.TLSAddr, config: &tls.Config{RootCAs: server.CA}, password: "wrong", err: limit.ErrAuth, says: "password"},
		"no password":          {addr: server.TLSAddr, config: &tls.Config{RootCAs: server.CA}, err: limit.ErrAuth, says: "password"},
		"no TLS":               {addr: server.TLSAddr, says: "it may speak TLS only"},
		"no TLS there":         {addr: server.Addr(), config: &tls.Config{RootCAs: server.CA}, says: "it may not speak TLS"},
		"nobody":               {addr: "127.0.0.1:1", config: &tls.Config{RootCAs: server.CA}, says: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			var log *lockedBuffer
			var l *Limiter
			var err error
			answers := c.err != nil || c.says == ""
			// On a busy machine, a limiter may not get its answer within the second for which Open waits.
			redistest.Eventually(t, "the server answers if it should", func() bool {
				log = new(lockedBuffer)
				l, err = Open(&redis.UniversalOptions{Addrs: []string{c.addr}, TLSConfig: c.config, Password: c.password},
					Prefix(redistest.Prefix()), Deadline(5*time.Second), Logger(slog.New(slog.NewTextHandler(log, nil))))
				if err != nil || !answers || !l.Degraded() {
					return true
				}
				_ = l.Close()
				return false
			})
			if name == "no TLS there" && errors.Is(err, limit.ErrNotRedis) {
				return // some servers answer in plain text, and others wait for more
			}
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			var told string
			if err != nil {
				told = err.Error()
			} else {
				r := newRule(t, l, "search", limit.PerMinute(10))
				d := mustAllow(t, r, "k", 1)
				if reached := d.Tier == limit.TierRedis; reached != (c.says == "") {
					t.Errorf("%+v", d)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				l.log.flush(time.Minute) // Close waits less for the logger than a busy machine may take
			}
			told += log.String()
			if !strings.Contains(told, c.says) {
				t.Errorf("%q is not told: %s", c.says, told)
			}
		})
	}
}

// Law 3: nothing is charged if the TLS handshake fails.
func TestLaw3NothingRunsBeforeTheHandshake(t *testing.T) {
	server := redistest.StartTLS(t)
	client := redis.NewClient(&redis.Options{Addr: server.TLSAddr, DialerRetries: 1, MaxRetries: -1, TLSConfig: &tls.Config{RootCAs: x509.NewCertPool()}})
	defer client.Close()
	err := client.Ping(context.Background()).Err()
	if err == nil || remote.MayHaveRun(err) {
		t.Errorf("%v may have charged something", err)
	}
}
