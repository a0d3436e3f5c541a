package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/tiered"
)

// options returns the options of a client. REDIS_URL is host:port, a path, or a redis:// URL. For Sentinel it is the
// master's name and host:port of each sentinel, and for a Cluster host:port of some masters, separated by commas. As
// in envoyproxy/ratelimit, REDIS_AUTH and REDIS_SENTINEL_AUTH override the credentials in a URL, and a sentinel's URL
// says how to reach that sentinel.
func (s *RedisSettings) options(prefix string) (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		// A trip takes one connection, however many calls share it.
		PoolSize: max(s.PoolSize, 4*runtime.GOMAXPROCS(0)),
	}
	o.Username, o.Password = userAndPassword(s.Auth)
	addresses := splitAddresses(s.URL)
	switch s.Type {
	case "sentinel":
		if len(addresses) < 2 {
			return nil, fmt.Errorf("%w: %sURL has %d parts, must be the master's name and at least one sentinel: NAME,HOST:PORT", ErrInvalidSetting, prefix, len(addresses))
		}
		o.MasterName, addresses = addresses[0], addresses[1:]
		o.SentinelUsername, o.SentinelPassword = userAndPassword(s.SentinelAuth)
	case "cluster":
		if len(addresses) == 0 {
			return nil, fmt.Errorf("%w: %sURL is %q, must have at least one HOST:PORT", ErrInvalidSetting, prefix, s.URL)
		}
		o.IsClusterMode = true
	default:
		addresses = []string{s.address()} // a path may have a comma
	}
	for _, address := range addresses {
		if scheme, _, isURL := strings.Cut(address, "://"); isURL {
			parsed, err := parseURL(address)
			if err != nil {
				return nil, fmt.Errorf("%w: %sURL cannot be read; write it as HOST:PORT, or like redis://user:password@host:6379/0 (the URL is not shown, because it may contain a password)", ErrInvalidSetting, prefix)
			}
			address = parsed.Addr
			o.DB = parsed.DB
			user, password := &o.Username, &o.Password
			if s.Type == "sentinel" { // the URL is a sentinel's
				user, password = &o.SentinelUsername, &o.SentinelPassword
			}
			*user, *password = cmp.Or(*user, parsed.Username), cmp.Or(*password, parsed.Password)
			s.TLS = s.TLS || scheme == "rediss"
		} else if !isAddress(address) {
			return nil, fmt.Errorf("%w: %sURL is %q, must be HOST:PORT, the path of a socket, or like redis://user:password@host:6379/0", ErrInvalidSetting, prefix, s.shownURL())
		}
		o.Addrs = append(o.Addrs, address)
	}
	if s.TLS {
		config, err := s.Files.config()
		if err != nil {
			return nil, err
		}
		o.TLSConfig = config
	}
	if s.Type == "single" && (s.Network == "tcp4" || s.Network == "tcp6") {
		dial := tiered.Dialer(dialTimeout, o.TLSConfig)
		o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			if network == "tcp" { // and not the path of a socket
				network = s.Network
			}
			return dial(ctx, network, address)
		}
	}
	return o, nil
}

// dialTimeout is the timeout that [tiered.Open] sets unless the client has a dialer of its own.
const dialTimeout = time.Second

// splitAddresses splits a list at its commas. Empty parts, as templates leave them at the end, do not count.
func splitAddresses(list string) (parts []string) {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// parseURL reads a redis:// URL. Like envoyproxy/ratelimit, it takes the credentials and the database from the
// parameters username, password and db if they stand nowhere else in the URL, and ignores all other parameters.
func parseURL(text string) (*redis.Options, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "unix" { // the path is that of the socket, so only a parameter can say the database
		return redis.ParseURL(text)
	}
	parameters := u.Query()
	user, password := u.User.Username(), parameters.Get("password")
	if own, ok := u.User.Password(); ok {
		password = own
	}
	u.User = url.UserPassword(cmp.Or(user, parameters.Get("username")), password)
	if u.Path == "" || u.Path == "/" {
		u.Path = "/" + parameters.Get("db")
	}
	u.RawQuery = ""
	return redis.ParseURL(u.String())
}

// address returns the URL with an absolute path if it is a relative path of a socket, because the client takes only
// absolute paths for sockets. Without REDIS_SOCKET_TYPE only a slash tells a path from a host whose port is forgotten.
// A relative path with a colon or an @ is not taken for one: it is more likely a URL without redis://.
func (s *RedisSettings) address() string {
	isPath := s.Network == "unix" || s.Network == "" && strings.Contains(s.URL, "/")
	if !isPath || strings.ContainsAny(s.URL, ":@") {
		return s.URL
	}
	path, err := filepath.Abs(s.URL)
	if err != nil { // the working directory is gone
		return s.URL
	}
	return path
}

// isAddress reports whether text can be dialed: it is host:port or a path. Like the client, it takes text that begins
// with a slash for a path.
func isAddress(text string) bool {
	if strings.HasPrefix(text, "/") {
		return true
	}
	_, port, err := net.SplitHostPort(text)
	if err != nil || port == "" {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}

func userAndPassword(auth string) (user, password string) {
	if user, password, both := strings.Cut(auth, ":"); both {
		return user, password
	}
	return "", auth
}

// shown returns where Redis is, without passwords.
func (s *RedisSettings) shown() string { return s.Type + " " + s.shownURL() }

func (s *RedisSettings) shownURL() string {
	parts := []string{s.URL} // a password may have a comma
	if s.Type != "single" {
		parts = strings.Split(s.URL, ",")
	}
	for i, part := range parts {
		scheme, _, isURL := strings.Cut(part, "://")
		if u, err := url.Parse(part); err == nil && (isURL || u.Host != "") {
			parts[i] = u.Scheme + "://" + u.Host + u.Path
		} else if isURL { // a password may stand anywhere in it
			parts[i] = scheme + "://..."
		} else if at := strings.LastIndex(part, "@"); at >= 0 {
			parts[i] = part[at+1:]
		}
	}
	return strings.Join(parts, ",")
}

func (f *RedisTLSFiles) config() (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: f.SkipHostname, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pool, err := readCertificates("REDIS_TLS_CACERT", f.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if f.SkipHostname { // the certificate's issuer is still checked
		c.VerifyPeerCertificate = issuedBy(c.RootCAs)
	}
	if f.Certificate != "" && f.Key != "" {
		own, err := clientCertificate("REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY", f.Certificate, f.Key)
		if err != nil {
			return nil, err
		}
		c.GetClientCertificate = own
	}
	return c, nil
}

// issuedBy returns a function that checks that a certificate of the pool issued the server's certificate. If the pool
// is nil, the system's trusted certificates are used. Errors are those of a handshake that checks by itself, because
// the limiter knows a wrong setting, with which the service does not start, from an outage by them.
func issuedBy(pool *x509.CertPool) func([][]byte, [][]*x509.Certificate) error {
	return func(raw [][]byte, _ [][]*x509.Certificate) error {
		var all []*x509.Certificate
		for _, der := range raw {
			certificate, err := x509.ParseCertificate(der)
			if err != nil {
				return err
			}
			all = append(all, certificate)
		}
		if len(all) == 0 {
			return fmt.Errorf("tierlimit: Redis presented no certificate")
		}
		between := x509.NewCertPool()
		for _, certificate := range all[1:] {
			between.AddCert(certificate)
		}
		if _, err := all[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between}); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: all, Err: err}
		}
		return nil
	}
}

// readCertificates reads certificates from a file. The variable that names the file is for errors.
func readCertificates(variable, path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalidSetting, variable, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%w: %s: %s has no certificate in PEM form", ErrInvalidSetting, variable, path)
	}
	return pool, nil
}
