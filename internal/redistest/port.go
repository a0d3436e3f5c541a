package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Servers listen below the ranges from which Linux (32768 and up) and macOS (49152 and up) take the ports of
// outgoing connections. Within those ranges the port of a killed server could be given to any client's connection,
// even to one that is trying to reach that server. Restart would then find the port in use.
//
// A node of a Cluster also listens for other nodes, at a port that is busAbove higher. Redis 7 can be given another
// port, older servers cannot. So the upper half of the range is left to these ports.
const (
	firstPort = 12768
	portCount = 10000
	busAbove  = 10000
)

// Test binaries run side by side, so each starts at another port.
var (
	portStart = rand.Uint32N(portCount)
	portsUsed atomic.Uint32
)

// freePort returns a port on which nobody listens now, nor at the port of its bus, and which it has not returned
// lately, so that a killed server can have its port back. Another process may still take the port first; callers that
// start a server must expect that.
func freePort() int {
	var port int
	for range portCount {
		port = firstPort + int((portStart+portsUsed.Add(1))%portCount)
		if nobodyListens(port) && nobodyListens(port+busAbove) {
			break
		}
	}
	return port
}

func nobodyListens(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
