"""A cloud on loopback: STS, IAM and S3 of moto, with a user, its key and a role. Every signature is checked from then on.

First line: the port, the key's id, the key, the role's ARN."""
import json
import sys
import urllib.request

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
made_up = dict(region_name="us-east-1", aws_access_key_id="x" * 20, aws_secret_access_key="y" * 40)
iam = boto3.client("iam", endpoint_url=f"http://127.0.0.1:{port}", **made_up)
everything = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
iam.create_user(UserName="person")
key = iam.create_access_key(UserName="person")["AccessKey"]
iam.put_user_policy(UserName="person", PolicyName="all", PolicyDocument=everything)
role = iam.create_role(RoleName="agent", AssumeRolePolicyDocument=everything)["Role"]["Arn"]
iam.put_role_policy(RoleName="agent", PolicyName="all", PolicyDocument=everything)
request = urllib.request.Request(f"http://127.0.0.1:{port}/moto-api/reset-auth", data=b"0", headers={"content-type": "text/plain"})
urllib.request.urlopen(request).read()
print(port, key["AccessKeyId"], key["SecretAccessKey"], role, flush=True)
sys.stdin.read()
