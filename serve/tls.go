package serve

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// reloaded is a certificate that is read again after its files have changed.
type reloaded struct {
	files TLSFiles
	log   *slog.Logger

	mu      sync.Mutex // guards the rest
	looked  time.Time
	changed [3]time.Time // modification times of the files
	config  *tls.Config
	failed  string // the last error that was logged about unusable files
}

// lookAtCertificates is the shortest time between two checks of the files. They are checked when a client connects.
const lookAtCertificates = time.Second

// serverTLS returns the configuration of a server whose certificates may change.
func serverTLS(files TLSFiles, log *slog.Logger) (*tls.Config, error) {
	r := &reloaded{files: files, log: log}
	if _, err := r.current(time.Now()); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return r.current(time.Now())
		},
	}, nil
}

// current returns the configuration for the files as they are now. If the files cannot be read, for instance because
// they are half replaced, it returns the last one that could. A certificate that has expired or is not valid yet does
// not replace a valid one.
func (r *reloaded) current(now time.Time) (*tls.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config != nil && now.Sub(r.looked) < lookAtCertificates {
		return r.config, nil
	}
	r.looked = now
	changed := r.times()
	if r.config != nil && changed == r.changed {
		return r.config, nil
	}
	config, err := r.files.load()
	if err == nil {
		switch err = isValid(config, now); {
		case err == nil:
		case r.config != nil && isValid(r.config, now) == nil: // keep the valid one
		default: // no valid certificate is there, so use this one
			r.log.Error("the service presents a certificate that clients do not accept", "error", err)
			err = nil
		}
	}
	if err != nil {
		if r.config == nil {
			return nil, err
		}
		if r.failed != err.Error() { // log it only once
			r.failed = err.Error()
			r.log.Error("the certificates in the files cannot be used; the current certificates stay in use", "error", err)
		}
		return r.config, nil
	}
	r.config, r.changed, r.failed = config, changed, ""
	return config, nil
}

// isValid returns an error if the configuration's certificate has expired or is not valid yet.
func isValid(c *tls.Config, now time.Time) error {
	leaf := c.Certificates[0].Leaf
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("%w: GRPC_SERVER_TLS_CERT: the certificate expired at %s", ErrInvalidSetting, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("%w: GRPC_SERVER_TLS_CERT: the certificate is not valid before %s", ErrInvalidSetting, leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}

func (r *reloaded) times() (changed [3]time.Time) {
	for i, path := range []string{r.files.Certificate, r.files.Key, r.files.ClientCA} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			changed[i] = info.ModTime()
		}
	}
	return changed
}

func (f *TLSFiles) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: %w", ErrInvalidSetting, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if f.ClientCA == "" {
		return c, nil
	}
	if c.ClientCAs, err = readCertificates("GRPC_CLIENT_TLS_CACERT", f.ClientCA); err != nil {
		return nil, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if f.ClientName != "" {
		c.VerifyConnection = f.isExpected
	}
	return c, nil
}

// isExpected checks that the client's certificate, which has been verified, is for the expected name.
func (f *TLSFiles) isExpected(state tls.ConnectionState) error {
	return checkName(state.PeerCertificates[0], f.ClientName)
}

func checkName(certificate *x509.Certificate, name string) error {
	for _, uri := range certificate.URIs {
		if uri.String() == name {
			return nil
		}
	}
	if err := certificate.VerifyHostname(name); err != nil {
		return fmt.Errorf("the client's certificate is not for the expected name: %w", err)
	}
	return nil
}
