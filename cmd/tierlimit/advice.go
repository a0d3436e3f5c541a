package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// advice is what to do about an error of a server that begins with a text.
type advice struct{ start, text string }

const (
	needsPassword = "the server wants a password: write it into the URL (-redis or $REDIS_URL), as in redis://:PASSWORD@host:6379, or redis://USER:PASSWORD@host:6379 for a user of an ACL"
	onlyLooks     = "the server is a node of a Cluster, on which only show and top work: give the URL of a Redis of one node"
	isSentinel    = "is it a Sentinel? Then add the name of its master to the URL, as in redis://host:26379?master_name=mymaster"
)

// refusals are errors whose cause is the URL.
var refusals = []advice{
	{"NOAUTH", needsPassword},
	{"WRONGPASS", "check the user and the password in the URL (-redis or $REDIS_URL); without a user, the password has a colon in front, as in redis://:PASSWORD@host:6379, and its special characters are percent-encoded (# as %23)"},
	{"DENIED", "the server accepts only connections from its own machine, because it has no password (protected mode)"},
	{"DB index is out of range", "the number behind the last slash of the URL is the database"},
	{"SELECT is not allowed in cluster mode", "a Cluster has no other database than 0: leave out the number behind the last slash of the URL"},
}

// trialRefusals are errors of commands that write to a Redis of one node.
var trialRefusals = append([]advice{
	{"MOVED", onlyLooks},
	{"unknown command", "is it a Sentinel? Only show and top work with one: give the URL of a Redis of one node"},
	{"NOPERM", "this command writes keys of its own: use a Redis for trials, and a user that may run all commands"},
}, refusals...)

// lookRefusals are errors of commands that look into a Redis of any kind.
var lookRefusals = append([]advice{
	{"MOVED", "the server is a node of a Cluster: give the address of a second node too, as in redis://host:6379?addr=other:6379"},
	{"This instance has cluster support disabled", "the server is no node of a Cluster: leave addr out of the URL"},
	{"unknown command 'sentinel'", "the URL has a master_name, so its address must be of a Sentinel, whose port is mostly 26379"},
	{"unknown command 'time'", isSentinel},
	{"unknown command 'scan'", isSentinel},
}, refusals...)

// explained adds advice to an error of the Redis of a command that writes to it.
func explained(err error) error { return advised(err, trialRefusals) }

// explainedToLook adds advice to an error of a Redis that services use, whose keys have a prefix.
func explainedToLook(err error, prefix string) error {
	rights := fmt.Sprintf("show and top need a user with the rights ~%s:* +get +pttl +time +zrange +scan, and +cluster|slots on a Cluster", prefix)
	return advised(err, append([]advice{{"NOPERM", rights}}, lookRefusals...))
}

func advised(err error, known []advice) error {
	if err == nil {
		return nil
	}
	for _, about := range known {
		if redis.HasErrorPrefix(err, about.start) {
			return fmt.Errorf("%w: %s", err, about.text)
		}
	}
	if text := connecting(err); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// connecting returns advice on an error of the connection, or "".
func connecting(err error) string {
	text := err.Error()
	timeout, isNet := errors.AsType[net.Error](err)
	record, _ := errors.AsType[tls.RecordHeaderError](err)
	notTLS := record.Conn != nil // otherwise an answer was damaged after the handshake
	_, otherName := errors.AsType[x509.HostnameError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case strings.Contains(text, "sentinels specified") && errors.Is(err, redis.Nil):
		return "the Sentinels know no master of the name that the URL gives as master_name"
	case strings.Contains(text, "connection refused"):
		return "is Redis running, and is the address right?"
	case otherName:
		return "write the server's address in the URL as its certificate names it"
	case untrusted:
		return "set the variable SSL_CERT_FILE to a file with the certificate of its authority (macOS and Windows use the system's authorities instead), or add ?skip_verify=true to the URL, which leaves the certificate unchecked"
	case strings.Contains(text, "tls: certificate required"):
		return "the server wants a certificate of the client, which a URL cannot give: use a port without TLS, or a proxy such as stunnel"
	case notTLS:
		return "the server does not answer with TLS: should the URL begin with redis:// instead of rediss://?"
	case isNet && timeout.Timeout():
		return "is it a Redis, is it up, and does it want rediss:// for TLS, or redis:// without?"
	case errors.Is(err, io.EOF):
		return "the server closed the connection: is it a Redis, and does it want rediss:// for TLS?"
	}
	return ""
}

// reach returns an error if a Redis does not answer, or is a node of a Cluster. A command that takes a while should say
// so first.
func (s server) reach(ctx context.Context) error {
	client := redis.NewClient(s.options)
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("reaching %s: %w", s.shown, explained(err))
	}
	if isOfCluster(ctx, client) {
		return fmt.Errorf("%s: %s", s.shown, onlyLooks)
	}
	return nil
}
