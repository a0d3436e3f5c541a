package serve

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
)

// clientCertificate returns a function for [tls.Config.GetClientCertificate]. It reads the certificate for each
// connection, because a certificate is renewed before it expires. If the files cannot be read, for instance because they
// are half replaced, it returns the last one that could. The variables that name the files are for errors.
func clientCertificate(variables, certificate, key string) (func(*tls.CertificateRequestInfo) (*tls.Certificate, error), error) {
	var last atomic.Pointer[tls.Certificate]
	read := func() error {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInvalidSetting, variables, err)
		}
		last.Store(&pair)
		return nil
	}
	if err := read(); err != nil {
		return nil, err
	}
	return func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		_ = read()
		if own := last.Load(); asked.SupportsCertificate(own) == nil {
			return own, nil
		}
		return new(tls.Certificate), nil // none, as tls.Config.Certificates would do
	}, nil
}
