"""paho for Python behind the streams described in ../README.md."""

import json
import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

VERSIONS = {"3.1": mqtt.MQTTv31, "3.1.1": mqtt.MQTTv311, "5.0": mqtt.MQTTv5}
output = threading.Lock()


def tell(event, **fields):
    with output:
        print(json.dumps({"event": event, **fields}), flush=True)


def connect(command):
    version = VERSIONS[command["version"]]
    options = {} if version == mqtt.MQTTv5 else {"clean_session": command["clean"]}
    scheme = command.get("scheme", "mqtt")
    if scheme in ("ws", "wss"):
        options["transport"] = "websockets"
    if scheme == "unix":
        options["transport"] = "unix"
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=command["id"],
        protocol=version,
        reconnect_on_failure=False,
        **options,
    )
    if "user" in command:
        client.username_pw_set(command["user"], command.get("password"))
    if scheme in ("mqtts", "wss"):
        client.tls_set(
            ca_certs=command["ca"], certfile=command.get("cert"), keyfile=command.get("key")
        )
    if "will" in command:
        client.will_set(command["will"]["topic"], command["will"]["payload"], qos=1)

    def connected(client, userdata, flags, reason, properties):
        if reason.is_failure:
            tell("refused", code=reason.value)
            client.disconnect()
        else:
            tell("connected", session=flags.session_present)

    def subscribed(client, userdata, mid, reasons, properties):
        tell("subscribed", code=reasons[0].value)

    def unsubscribed(client, userdata, mid, reasons, properties):
        tell("unsubscribed")

    def published(client, userdata, mid, reason, properties):
        tell("published")

    def disconnected(client, userdata, flags, reason, properties):
        tell("disconnected")

    def message(client, userdata, message):
        tell(
            "message",
            topic=message.topic,
            payload=message.payload.decode(),
            qos=message.qos,
            retain=message.retain,
        )

    client.on_connect = connected
    client.on_subscribe = subscribed
    client.on_unsubscribe = unsubscribed
    client.on_publish = published
    client.on_disconnect = disconnected
    client.on_message = message
    more = {}
    if version == mqtt.MQTTv5:
        more["clean_start"] = command["clean"]
        if not command["clean"]:
            more["properties"] = Properties(PacketTypes.CONNECT)
            more["properties"].SessionExpiryInterval = 3600
    host = "127.0.0.1" if scheme == "mqtt" else command.get("socket", "localhost")
    try:
        # With a unix socket the library wants a port too, and ignores it.
        client.connect(host, command["port"] or 1883, **more)
    except OSError as error:
        tell("error", text=str(error))
    client.loop_start()
    return client


def main():
    client = None
    for line in sys.stdin:
        command = json.loads(line)
        do = command["do"]
        if do == "connect":
            client = connect(command)
        elif do == "subscribe":
            client.subscribe(command["filter"], command["qos"])
        elif do == "unsubscribe":
            client.unsubscribe(command["filter"])
        elif do == "publish":
            client.publish(
                command["topic"], command["payload"], command["qos"], command["retain"]
            )
        elif do == "disconnect":
            client.disconnect()


main()
