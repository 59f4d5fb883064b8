package nbtest

import (
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nodesubnet"
)

// Client does what controllers and agents do to NB.
type Client struct {
	*ovnnet.Networks
	Gateways *gateway.Gateways
	Subnets  *nodesubnet.Subnets
	Node     *gateway.Node
	DB       *ovndb.DB
	Routers  map[string]*netmodel.Router
	Widest   int
}

// NewClient returns a client that is a controller with these routers, and an agent.
func NewClient(db *ovndb.DB, routers map[string]*netmodel.Router) *Client {
	return NewClientIPAM(db, routers, conf.DefaultWidestIPAM)
}

// NewClientIPAM is NewClient with another --widest-ipam-subnet.
func NewClientIPAM(db *ovndb.DB, routers map[string]*netmodel.Router, widest int) *Client {
	s := nbrows.NewStore(db)
	gateways := gateway.New(s, routers)
	return &Client{ovnnet.New(s, gateways, widest), gateways, nodesubnet.New(db), gateway.NewNode(db), db, routers, widest}
}

// WithIPAM returns a client like c with another --widest-ipam-subnet.
func (c *Client) WithIPAM(widest int) *Client { return NewClientIPAM(c.DB, c.Routers, widest) }
