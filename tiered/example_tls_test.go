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

// This example connects by TLS, with a private certificate authority and a client certificate, as a Redis user
// that has only the rights the limiter needs. Without RootCAs, the system's certificate authorities apply.
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
			Certificates: []tls.Certificate{own}, // needed if the server asks for a client certificate
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
