package serve

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Clients may ping their connections several times a second, with and without calls in flight, as Envoy does if its
// connection_keepalive says so.
func TestPingsOfClients(t *testing.T) {
	t.Parallel()
	server := start(t, shop)
	connection, err := net.Dial("tcp", server.Addr("grpc").String())
	must(t, err)
	defer connection.Close()
	must(t, connection.SetDeadline(time.Now().Add(time.Minute)))
	_, err = connection.Write([]byte(http2.ClientPreface))
	must(t, err)
	framer := http2.NewFramer(connection, connection)
	must(t, framer.WriteSettings())
	for n := byte(1); n <= 8; n++ {
		time.Sleep(200 * time.Millisecond)
		must(t, framer.WritePing(false, [8]byte{n}))
		for acknowledged := false; !acknowledged; {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatalf("ping %d: %v", n, err)
			}
			switch frame := frame.(type) {
			case *http2.GoAwayFrame:
				t.Fatalf("ping %d: the connection is closed: %v, %s", n, frame.ErrCode, frame.DebugData())
			case *http2.PingFrame:
				acknowledged = frame.IsAck() && frame.Data == [8]byte{n}
			}
		}
	}
}
