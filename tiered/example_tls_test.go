package tiered_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// TLS, with an authority of one's own and a certificate of this client's, and a user of
// Redis that may do no more than it needs. Without RootCAs the system's authorities count.
func ExampleOpen_tls() {
	authority, err := os.ReadFile("/etc/tierlimit/ca.pem")
	if err != nil {
		log.Fatal(err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(authority) {
		log.Fatal("no certificate in ca.pem")
	}
	own, err := tls.LoadX509KeyPair("/etc/tierlimit/client.pem", "/etc/tierlimit/client.key")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := tiered.Open(&redis.UniversalOptions{
		Addrs:    []string{"redis.internal.example:6380"},
		Username: "limiter",
		Password: os.Getenv("REDIS_PASSWORD"),
		TLSConfig: &tls.Config{
			RootCAs:      authorities,
			Certificates: []tls.Certificate{own}, // if the server asks for one
			ServerName:   "redis.internal.example",
			MinVersion:   tls.VersionTLS12,
		},
	})
	switch {
	case errors.Is(err, limit.ErrTLS):
		log.Fatal("the certificates do not fit: ", err)
	case errors.Is(err, limit.ErrAuth):
		log.Fatal("user, password or ACL: ", err)
	case err != nil:
		log.Fatal(err)
	}
	defer limiter.Close()
}
