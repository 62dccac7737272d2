"""Fifty kinds of secrets as jobs have them: text -> the part of it that must be nowhere afterwards."""

import base64

_MIXED = "q7Rt2Xz9Lm4Kc8Vb1Nw6Yp3Hd5Js0Fg2TuA4e"  # letters and digits as a generator mixes them
_LOW = "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432"
KINDS = {
    f"--api-key={_LOW}": _LOW, "--password=hunter2secret": "hunter2secret",
    "--db-password=with space and & sign": "space and", "--token=tk.short1": "tk.short1",
    "--hf_token=plainvalue1": "plainvalue1", "--secret-key=sk1value": "sk1value",
    "WANDB_API_KEY=0123wandbvalue": "0123wandbvalue", "PGPASSWORD=pgvalue77": "pgvalue77",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtnFEMI",
    "DB_PASS=passvalue42": "passvalue42", "--pwd=pwdvalue43": "pwdvalue43", "SLACK_WEBHOOK=https://h/x44": "h/x44",
    "os.environ['HF_TOKEN'] = 'inline45'": "inline45", "wandb.login(key='login46')": "login46",
    "if token == 'compared47':": "compared47", "--wandb-key=wandbkey48": "wandbkey48", "?to=x%3Ftoken%3Durl49": "url49",
    "credentials=credvalue9": "credvalue9", "passphrase: opensesame8": "opensesame8",
    '{"client_secret": "clientvalue5"}': "clientvalue5", "{'private_key': 'privvalue6'}": "privvalue6",
    'password = "in the code7"': "in the code7",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=azvalue8==;EndpointSuffix=x": "azvalue8",
    "s3://b/x?X-Amz-Signature=amzsig12&X-Amz-Expires=1": "amzsig12",
    "s3://b/x?a=1&X-Amz-Credential=amzcred13%2Fus": "amzcred13", "https://h/x?sv=1&sig=sasvalue14%3D": "sasvalue14",
    "gs://b/x?GoogleAccessId=a&Signature=gsvalue15": "gsvalue15", "https://h/x?access_token=urltoken16": "urltoken16",
    "https://user17:pass17word@h/x": "pass17word", "git+https://onlytoken18@github.com/x": "onlytoken18",
    "postgresql://u:dbpass19@h:5432/d": "dbpass19", "redis://:redispass20@h": "redispass20",
    "Authorization: Bearer bearervalue21": "bearervalue21",
    "curl -H 'Authorization: Basic dXNlcjpwYXNzMjI='": "dXNlcjpwYXNzMjI", "Cookie: session=cookie23": "cookie23",
    "AKIAIOSFODNN7EXAMPLE": "AKIAIOSFODNN7EXAMPLE", f"ghp_{_MIXED}": _MIXED, f"github_pat_{_MIXED}": _MIXED,
    "glpat-abcdefgh1234567890ab": "abcdefgh1234567890ab", "hf_plantedHuggingvalue32": "plantedHuggingvalue32",
    "sk-proj-abcdefghijklmnop1234": "abcdefghijklmnop1234", "xoxb-123456789012-abcdef": "123456789012-abcdef",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv": "SyA1234567890",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl": "c2lnbmF0dXJl",
    "npm_plantednodevalue0123456789": "plantednodevalue0123456789",
    "-----BEGIN RSA PRIVATE KEY-----MIIBpemvalue39-----END RSA PRIVATE KEY-----": "MIIBpemvalue39", _MIXED: _MIXED,
    base64.b64encode(b'{"api_key": "hidden41"}').decode(): base64.b64encode(b'{"api_key": "hidden41"}').decode(),
    "++secrets.hf=hydrasec50": "hydrasec50", "PASS=shortpass51": "shortpass51", "creds=credv52": "credv52",
    "machine h login u password netrcpw53": "netrcpw53", "Cookie: a=cook54; session=cook55": "session=cook55",
    "curl --user me:curlpw56 https://h": "curlpw56", "https://d.example/api/webhooks/1/hook57": "hook57",
    "abc8Q~abcdefghijklmnopqrstuvwxyz123456": "mnopqrstuvwxyz1", "invalid token 'told58abc'": "told58abc",
    "Invalid API key provided: badkey59": "badkey59", "wandb login 0123456789abcdef0123456789abcdef01": "89abcdef01",
}  # fmt: skip
