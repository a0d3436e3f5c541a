package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TLSServer is a server that also speaks TLS, on a second port.
type TLSServer struct {
	*Server
	// TLSAddr is "host:port" of the TLS port.
	TLSAddr string
	// CAFile is the path of the authority's certificate, in PEM; CA is a pool with that certificate.
	CAFile string
	CA     *x509.CertPool
	// Host is the name in the server's certificate, which also has the address 127.0.0.1.
	Host string
	// Client is a certificate of the same authority for a client.
	Client tls.Certificate
}

// StartTLS starts a server that also speaks TLS, with a certificate made for it. The server asks clients for a
// certificate if args say so ("--tls-auth-clients", "yes"). It is killed when the test ends.
func StartTLS(tb testing.TB, args ...string) *TLSServer {
	tb.Helper()
	dir := tb.TempDir()
	s := &TLSServer{Host: "redis.example", CAFile: filepath.Join(dir, "ca.pem"), CA: x509.NewCertPool()}
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "redistest"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	ca := newCertificate(tb, authority, nil)
	s.CA.AddCert(ca.Leaf)
	server := newCertificate(tb, &x509.Certificate{
		DNSNames: []string{s.Host}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &ca)
	s.Client = newCertificate(tb, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, &ca)
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		tb.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	writePEM(tb, s.CAFile, "CERTIFICATE", ca.Leaf.Raw)
	writePEM(tb, certFile, "CERTIFICATE", server.Leaf.Raw)
	writePEM(tb, keyFile, "PRIVATE KEY", key)
	s.Server = start(tb, func(port int) []string {
		tlsPort := freePort()
		s.TLSAddr = loopback(tlsPort)
		return append(append(plainArgs(port), "--tls-port", strconv.Itoa(tlsPort), "--tls-ca-cert-file", s.CAFile,
			"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no"), args...)
	})
	return s
}

// newCertificate makes a key and a certificate for it, valid for a day, signed by an authority, or by itself if
// there is none.
func newCertificate(tb testing.TB, template *x509.Certificate, by *tls.Certificate) tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}
}

func writePEM(tb testing.TB, path, kind string, content []byte) {
	tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		tb.Fatal(err)
	}
}
